// The path that the page stands below, with a slash at its end; this file is in its folder public/.
const base = new URL('..', import.meta.url).pathname;

// The address of the conversation, so that a reload finds it again (chat_ui/visits.py sends its id).
// Chainlit sets it when its list of conversations has come, which empties the message box: what a person types meanwhile
// is lost. And only where the list is in sight: on a phone it is not.
window.addEventListener('message', (event) => {
  const isNews = event.source === window && event.data?.type === 'thread';
  if (isNews && location.pathname === base) {
    history.replaceState(history.state, '', `${base}thread/${event.data.id}`);
  }
});

// A phone's list of conversations covers the one that was chosen in it until it is closed.
document.addEventListener('click', (event) => {
  if (event.target.closest?.('[data-mobile="true"] #thread-history a')) {
    document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
  }
});

// Chainlit's link to the export tells no page where it was clicked.
document.addEventListener(
  'click',
  (event) => {
    const link = event.target.closest?.(`a[href^="${base}history/export"]`);
    const thread = location.pathname.match(/\/thread\/([0-9a-f-]{36})$/);
    if (link) {
      link.href = `${base}history/export${thread ? `?thread=${thread[1]}` : ''}`;
    }
  },
  true,
);
