// Why a login failed. Chainlit looks it up in the translations by the words of the status line, which HTTP/2 does not
// have and nginx has words of its own for.
const base = new URL('..', import.meta.url).pathname;
const REASONS = {
  401: 'Unauthorized',
  429: 'Too Many Requests',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
};

// The seconds to wait, which the translations have no room for (page.css).
const tellWait = (response) => {
  const seconds = response.status === 429 ? response.headers.get('retry-after') : null;
  const unit = document.documentElement.lang.startsWith('zh') ? ' 秒' : ' s';
  document.documentElement.style.setProperty('--login-wait', seconds ? `" (${seconds}${unit})"` : '""');
};

const plainFetch = window.fetch;
window.fetch = async (...request) => {
  const response = await plainFetch(...request);
  if (response.url !== `${location.origin}${base}login`) {
    return response;
  }
  tellWait(response);
  const statusText = REASONS[response.status];
  if (!statusText) {
    return response;
  }
  return new Response(response.body, { status: response.status, statusText, headers: response.headers });
};
