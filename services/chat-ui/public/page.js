// Runs before the application.
(() => {
  // Chainlit starts dark; a person's system knows better. A choice made on the page stays.
  if (!localStorage.getItem('vite-ui-theme')) {
    localStorage.setItem('vite-ui-theme', 'system');
  }

  // Screen readers and fonts go by the language of the page; "en" is what the page comes with when none is fixed.
  const html = document.documentElement;
  if (html.lang === 'en') {
    html.lang = navigator.language || 'en';
  }
  document.addEventListener('DOMContentLoaded', () => import('./accessibility.js'));

  // Chainlit asks who is there whenever the window gets the focus or the network comes back, which is when it fails, takes
  // any failure for a no and leaves for the login, and the conversation with it. Its list keeps a failure for good.
  const FIRST_WAIT_MS = 500;
  const LONGEST_WAIT_MS = 8_000;
  const isPassing = {
    '/user': ({ status }) => status >= 500 || status === 429,
    '/project/threads': ({ status }) => status === 502 || status === 504,
  };
  const plainFetch = window.fetch.bind(window);
  const patientFetch = async (isToBeAskedAgain, address, options) => {
    for (let wait_ms = FIRST_WAIT_MS; ; wait_ms = Math.min(2 * wait_ms, LONGEST_WAIT_MS)) {
      const response = await plainFetch(address, options).catch(() => null);
      if (response && !isToBeAskedAgain(response)) {
        return response;
      }
      options?.signal?.throwIfAborted();
      // Not all pages at once when a server is back.
      await new Promise((resume) => { setTimeout(resume, wait_ms * (0.5 + Math.random())); });
    }
  };

  // Where the server says what is wrong and what to do (AWAY in chat_ui/history/layer.py), that is all to be shown:
  // Chainlit puts the browser's "Service Unavailable" before it, and in the list of conversations in its place.
  const SEARCH_PAGE = 20;
  window.fetch = async (...request) => {
    const { pathname } = new URL(request[0], location.href);
    const path = Object.keys(isPassing).find((end) => pathname.endsWith(end));
    const response = await (path ? patientFetch(isPassing[path], ...request) : plainFetch(...request));
    const { detail } = response.status === 503 ? await response.clone().json().catch(() => ({})) : {};
    if (typeof detail !== 'string') {
      return response;
    }
    if (path === '/project/threads') {
      const { pagination, filter } = JSON.parse(request[1]?.body ?? '{}');
      if (pagination?.first === SEARCH_PAGE && !filter?.search) {
        // The search dialog's own look, when the page opens and nobody has searched: it would say the same once more.
        return Response.json({ data: [], pageInfo: { hasNextPage: false } });
      }
      // No answer at all: the list shows why, and no toast says it again.
      throw new Error(detail);
    }
    return Object.defineProperties(response, { statusText: { value: detail }, json: { value: async () => ({}) } });
  };

  // Answers reach the page with backslashes that keep its Markdown from eating text (presentation.py).
  // The copy button takes them along: they are removed outside code. Without TLS browsers offer no clipboard.
  const clipboard = navigator.clipboard;
  if (clipboard?.write && window.ClipboardItem) {
    const write = clipboard.write.bind(clipboard);
    const unescape = (text) =>
      text
        .split(/(^[ \t>]*```[\s\S]*?(?:^[ \t>]*```|$(?![\s\S]))|`[^`\n]*`)/m)
        .map((part, index) => (index % 2 ? part : part.replace(/\\([:$~]|!(?=\[))/g, '$1')))
        .join('');
    clipboard.write = async (items) => {
      const cleaned = items.map(async (item) => {
        const blobs = {};
        for (const type of item.types) {
          blobs[type] = await item.getType(type);
        }
        const plain = blobs['text/plain'];
        if (plain) {
          blobs['text/plain'] = new Blob([unescape(await plain.text())], { type: 'text/plain' });
        }
        return new ClipboardItem(blobs);
      });
      await write(await Promise.all(cleaned));
    };
  }

  // Beside this file: the page may stand below a path.
  import('./engine.js');
  import('./login.js');
  import('./roll_call.js');
  import('./thread.js');
})();
