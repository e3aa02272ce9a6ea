// What Chainlit's page leaves out for keyboards, screen readers and input methods. Loaded by page.js; touches
// attributes only, and never those that Chainlit itself sets, so that both can work on the same elements.

const CHINESE = document.documentElement.lang.startsWith('zh');
const say = (chinese, english) => (CHINESE ? chinese : english);

// Buttons that show a picture alone, by what Chainlit calls them or their picture.
const NAMES = [
  ['#new-chat-button', say('新建对话', 'New chat')],
  ['#chat-submit', say('发送', 'Send')],
  ['#stop-button', say('停止', 'Stop')],
  ['#theme-toggle', say('主题', 'Theme')],
  ['#sidebar-trigger-button', say('历史对话', 'Past chats')],
  ['#search-chats-button', say('搜索对话', 'Search chats')],
  ['#thread-options', say('对话选项', 'Options of this chat')],
  ['a[href$="/history/export"], #header button:has(a)', say('导出对话', 'Export chats')],
  ['#user-nav-button', say('账户', 'Account')],
  ['#chat-settings-open-modal, #chat-settings-header-button', say('设置', 'Settings')],
  ['.edit-message', say('修改这条消息', 'Edit this message')],
  ['.positive-feedback-on, .positive-feedback-off', say('有帮助', 'Helpful')],
  ['.negative-feedback-on, .negative-feedback-off', say('没有帮助', 'Not helpful')],
  ['button:has(> .lucide-message-circle)', say('修改反馈', 'Edit feedback')],
  ['button:has(> .lucide-copy)', say('复制', 'Copy')],
  ['button:has(> .lucide-check)', say('已复制', 'Copied')],
  ['button:has(> .lucide-arrow-down)', say('到最新消息', 'To the newest message')],
  ['button:has(> .lucide-eye)', say('显示密码', 'Show password')],
  ['button:has(> .lucide-eye-off)', say('隐藏密码', 'Hide password')],
  ['button:has(> .lucide-x)', say('关闭', 'Close')],
  ['#header', say('页面', 'Page')],
  ['#chat-input', say('消息', 'Message')],
  ['#edit-chat-input', say('修改消息', 'Edit message')],
  ['[role="dialog"][id^="mode-picker-popover"]', say('选择模型', 'Choose a model')],
];

// What the fields of the login are for: password managers go by it, and phones write no capital into a name.
const PURPOSES = [
  ['#email', 'username'],
  ['#password', 'current-password'],
];

const set = (element, attribute, value) => {
  if (element.getAttribute(attribute) !== value) {
    element.setAttribute(attribute, value);
  }
};

const label = () => {
  for (const [selector, name] of NAMES) {
    document.querySelectorAll(selector).forEach((element) => set(element, 'aria-label', name));
  }
  document.querySelectorAll('img.logo').forEach((image) => set(image, 'alt', 'ERNIE Chat'));
  for (const [selector, purpose] of PURPOSES) {
    document.querySelectorAll(selector).forEach((field) => {
      set(field, 'autocomplete', purpose);
      set(field, 'autocapitalize', 'none');
      set(field, 'spellcheck', 'false');
      // Chainlit says what is missing only at a field that was left once.
      set(field, 'required', '');
    });
  }
  document.querySelectorAll('.login-picture').forEach((image) => set(image, 'alt', ''));
  // The button's text says the same.
  document.querySelectorAll('#starters img').forEach((image) => set(image, 'alt', ''));
  // Chainlit calls each paragraph an article.
  document.querySelectorAll('.ai-message [role="article"]').forEach((text) => set(text, 'role', 'paragraph'));
  document.querySelectorAll('.ai-message').forEach((answer) => set(answer, 'role', 'article'));
  document.querySelectorAll('#header').forEach((header) => set(header, 'role', 'navigation'));
  // A button around a link: the link is what works.
  document.querySelectorAll('#header button:has(a)').forEach((wrap) => {
    set(wrap, 'role', 'group');
    set(wrap, 'tabindex', '-1');
  });
  // The list of conversations has more than items right below it, and its menus open from what is no button.
  document.querySelectorAll('ul[data-sidebar="menu"]').forEach((list) => set(list, 'role', 'group'));
  document.querySelectorAll('ul[data-sidebar="menu"] li').forEach((item) => set(item, 'role', 'presentation'));
  document.querySelectorAll('a > button[data-sidebar="menu-button"]').forEach((wrap) => {
    set(wrap, 'role', 'group');
    set(wrap, 'aria-label', wrap.textContent.trim() || say('对话', 'Chat'));
    set(wrap, 'tabindex', '-1');
  });
  document.querySelectorAll('div#thread-options').forEach((trigger) => {
    set(trigger, 'role', 'button');
    set(trigger, 'tabindex', '0');
  });
  document.querySelectorAll('#header ~ [data-panel-group]').forEach((panel) => set(panel, 'role', 'main'));
  // A slider's label names the track, which takes no focus; the thumb does.
  document.querySelectorAll('[role="slider"]').forEach((thumb) => {
    let field = thumb;
    while (field && !field.querySelector('label')) {
      field = field.parentElement;
    }
    set(thumb, 'aria-label', field?.querySelector('label').firstChild.textContent.trim() ?? '');
  });
  // What is wider than the page is reached with the arrow keys.
  document.querySelectorAll('.ai-message pre code, .ai-message .overflow-auto, .katex-display').forEach((wide) => {
    if (wide.scrollWidth > wide.clientWidth) {
      set(wide, 'tabindex', '0');
    }
  });
};

// What an open menu hides from screen readers must not be reached with the keyboard either. At once: a menu that closes
// gives the focus back before the next frame.
const shut = () => {
  document.querySelectorAll('[data-aria-hidden]:not([inert], [data-radix-focus-guard])').forEach((hidden) => {
    hidden.toggleAttribute('inert', true);
  });
  document.querySelectorAll('[inert]:not([data-aria-hidden])').forEach((shown) => {
    shown.toggleAttribute('inert', false);
  });
};

// A heading, a way past the conversation, and the voice that tells of answers: before Chainlit's own root.
const frame = document.createElement('header');
frame.id = 'page-frame';
frame.innerHTML = `
  <h1 class="for-screen-readers">ERNIE Chat</h1>
  <a class="skip-link" href="#chat-input">${say('跳到输入框', 'Skip to the message box')}</a>
  <div class="for-screen-readers" role="status" aria-live="polite"></div>`;
const skip = frame.querySelector('a');
skip.addEventListener('click', (event) => {
  event.preventDefault();
  document.getElementById('chat-input')?.focus();
});
const voice = frame.querySelector('[role="status"]');

const textOf = (answer) => {
  const copy = answer.cloneNode(true);
  // Formulas stand there twice, once for the eye.
  copy.querySelectorAll('[aria-hidden="true"], button, annotation').forEach((part) => part.remove());
  return copy.textContent.replace(/\s+/g, ' ').trim();
};

// A stopped answer gets its last words, and its mark, after the page has stopped waiting for them.
const SETTLED_MS = 500;
let answering = false;
let answers = 0;
let settling = 0;
const announce = () => {
  const [wasAnswering, hadAnswers] = [answering, answers];
  answering = document.getElementById('stop-button') !== null;
  answers = document.querySelectorAll('.ai-message').length;
  if (answering && !wasAnswering) {
    voice.textContent = say('正在回答', 'Answering');
  }
  // A short answer can come whole between two looks, and was never seen under way.
  const hasEnded = !answering && (wasAnswering || answers === hadAnswers + 1);
  if (hasEnded || settling) {
    clearTimeout(settling);
    settling = setTimeout(() => {
      settling = 0;
      const answer = [...document.querySelectorAll('.ai-message .message-content')].at(-1);
      voice.textContent = answer ? textOf(answer) : '';
    }, SETTLED_MS);
  }
};

// An input method's Enter chooses a word. Safari tells of it after the composition has ended, with this old code.
const INPUT_METHOD = 229;
window.addEventListener(
  'keydown',
  (event) => {
    if (event.key === 'Enter' && (event.isComposing || event.keyCode === INPUT_METHOD)) {
      event.stopPropagation();
    }
  },
  true,
);

// Once a frame, however much of an answer comes in it.
let planned = false;
const look = () => {
  planned = false;
  label();
  // The login page has nothing to skip to.
  skip.hidden = document.getElementById('chat-input') === null;
  announce();
};
new MutationObserver((changes) => {
  if (changes.some((change) => change.attributeName === 'aria-hidden')) {
    shut();
  }
  if (!planned) {
    planned = true;
    requestAnimationFrame(look);
  }
}).observe(document.body, {
  childList: true,
  subtree: true,
  attributes: true,
  attributeFilter: ['aria-hidden', 'class'],
});
document.body.prepend(frame);
look();
