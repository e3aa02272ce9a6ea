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

  // Where the server says what is wrong and what to do (AWAY in chat_ui/history/layer.py), that is all to be shown:
  // Chainlit puts the browser's "Service Unavailable" before it, and in the list of conversations in its place.
  const SEARCH_PAGE = 20;
  const fetch = window.fetch.bind(window);
  window.fetch = async (...request) => {
    const response = await fetch(...request);
    const { detail } = response.status === 503 ? await response.clone().json().catch(() => ({})) : {};
    if (typeof detail !== 'string') {
      return response;
    }
    if (new URL(response.url).pathname.endsWith('/project/threads')) {
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
