// The address of the conversation, so that a reload finds it again (chat_ui/page.py sends its id).
// Chainlit sets it only where its list of conversations is in sight: on a phone it is not.
window.addEventListener('message', (event) => {
  const isNews = event.source === window && event.data?.type === 'thread';
  if (isNews && location.pathname === '/' && !document.getElementById('thread-history')) {
    history.replaceState(history.state, '', `/thread/${event.data.id}`);
  }
});
