// A question that was sent while the connection was dying is on the page and nowhere else: Chainlit's page shows it at
// once and sends it once. When the page is back, the server asks for it (chat_ui/visits.py), and knows what it has.
window.addEventListener('message', (event) => {
  if (event.source !== window || event.data?.type !== 'roll-call') {
    return;
  }
  const last = [...document.querySelectorAll('[data-step-type]')].at(-1);
  const step = last?.querySelector('[id^="step-"]');
  const text = step?.querySelector('.message-content')?.textContent;
  if (last?.dataset.stepType === 'user_message' && text) {
    const { token } = event.data;
    // Chainlit passes to the server what is posted to its window.
    window.postMessage({ type: 'here', token, id: step.id.slice('step-'.length), text }, window.location.origin);
  }
});
