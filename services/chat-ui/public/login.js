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

const plainFetch = window.fetch;
window.fetch = async (...request) => {
  const response = await plainFetch(...request);
  const statusText = REASONS[response.status];
  if (!statusText || new URL(response.url).pathname !== `${base}login`) {
    return response;
  }
  return new Response(response.body, { status: response.status, statusText, headers: response.headers });
};
