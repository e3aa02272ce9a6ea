// How far the engine is, at the top of the page while it takes no questions (chat_ui/waiting.py sends it).
(() => {
  const GONE_AFTER_MS = 4000;
  let banner = null;
  let timer = 0;

  const make = () => {
    banner = document.createElement('div');
    banner.id = 'engine-state';
    banner.setAttribute('role', 'status');
    banner.append(document.createElement('span'), document.createElement('progress'));
    document.body.append(banner);
    return banner;
  };

  const show = ({ text, share, ready }) => {
    clearTimeout(timer);
    const [words, bar] = (banner ?? make()).children;
    // Read out by screen readers when it changes, not with every second.
    if (words.textContent !== text) {
      words.textContent = text;
    }
    bar.setAttribute('aria-label', text);
    if (typeof share === 'number') {
      bar.value = ready ? 1 : share;
    } else {
      bar.removeAttribute('value');
    }
    bar.hidden = ready;
    banner.classList.toggle('ready', ready);
    banner.hidden = false;
    if (ready) {
      timer = setTimeout(() => { banner.hidden = true; }, GONE_AFTER_MS);
    }
  };

  window.addEventListener('message', (event) => {
    if (event.source === window && event.data?.type === 'engine-state') {
      show(event.data);
    }
  });
})();
