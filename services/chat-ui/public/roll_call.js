// What was lost with a connection, told when the server asks (chat_ui/visits.py): a question that was sent while it was
// dying is on the page and nowhere else, for Chainlit's page shows it at once and sends it once; and a page that is back
// before it got anything has nothing.
window.addEventListener('message', (event) => {
  if (event.source !== window || event.data?.type !== 'roll-call') {
    return;
  }
  const { token, is_return: isReturn } = event.data;
  // Chainlit passes to the server what is posted to its window.
  const say = (said) => window.postMessage({ type: 'here', token, ...said }, window.location.origin);
  const last = [...document.querySelectorAll('[data-step-type]')].at(-1);
  const step = last?.querySelector('[id^="step-"]');
  const text = step?.querySelector('.message-content')?.textContent;
  if (!last && isReturn) {
    say({ is_empty: true });
  } else if (last?.dataset.stepType === 'user_message' && text) {
    say({ id: step.id.slice('step-'.length), text });
  }
});
