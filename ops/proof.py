"""The proof that the stack runs: a real answer through the front door, and the page beside it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from ops.errors import StackError

QUESTION = "你好"
ANSWER_TOKENS = 64
ANSWER_TIMEOUT_SECONDS = 120  # a CPU makes some 10 tokens a second
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Answer:
    """What came back: which model spoke, its text, and how long it took."""

    model: str
    text: str
    seconds: float


def prove(
    url: str,
    seconds: float,
    on_wait: Callable[[str], None],
    still_starting: Callable[[], bool] = lambda: False,
    key: str = "",
) -> Answer:
    """Wait until `/readyz` says 200 and a question comes back; returns the answer.

    `on_wait` gets the reason at each failed try and may raise to give up early. A service that is just being replaced
    fails a try, no more; nothing is tried while `still_starting`. Raises `StackError` with the last reason after
    `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _try_once(url, still_starting, key)
        except StackError as error:
            on_wait(str(error))
            if time.monotonic() > deadline:
                message = f"Not ready after {seconds:.0f} s: {error} Longer: STACK_START_TIMEOUT_SECONDS."
                raise StackError(message) from error
        time.sleep(POLL_SECONDS)


def _try_once(url: str, still_starting: Callable[[], bool], key: str) -> Answer:
    if still_starting():
        raise StackError("The services start one after the other.")
    reason = _readiness(url)
    if reason is not None:
        raise StackError(reason)
    return ask(url, key)


def ask(url: str, key: str = "") -> Answer:
    """Ask one question through the API and load the page; raises `StackError` if either does not work.

    Where keys are on and none is given, the gateway's own trials of the engine stand for the question.
    """
    started = time.monotonic()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(trust_env=False, timeout=ANSWER_TIMEOUT_SECONDS, headers=headers) as client:
        try:
            models = client.get(f"{url}/v1/models")
            if models.status_code == httpx.codes.UNAUTHORIZED and not key:
                client.get(f"{url}/").raise_for_status()
                return Answer("The gateway", "API keys are on; the engine has answered it", time.monotonic() - started)
            model = models.raise_for_status().json()["data"][0]["id"]
            question = {
                "model": model,
                "messages": [{"role": "user", "content": QUESTION}],
                "max_tokens": ANSWER_TOKENS,
            }
            reply = client.post(f"{url}/v1/chat/completions", json=question).raise_for_status().json()
            text = reply["choices"][0]["message"]["content"] or ""
            page = client.get(f"{url}/").raise_for_status()
        except (httpx.HTTPError, LookupError, ValueError) as error:
            raise StackError(f"A question through {url} failed: {error}") from error
    if not text.strip():
        raise StackError("The engine answered with an empty text; see `make status` and the engine's log.")
    if "text/html" not in page.headers.get("content-type", ""):
        raise StackError(f"{url}/ does not show the chat page.")
    return Answer(model, text.strip(), time.monotonic() - started)


def _readiness(url: str) -> str | None:
    """Return why the stack is not ready, or None if it says that it is."""
    try:
        answer = httpx.get(f"{url}/readyz", trust_env=False, timeout=5)
    except httpx.HTTPError:
        return "The front door does not answer yet."
    if answer.status_code == httpx.codes.OK:
        return None
    try:
        return str(answer.json()["error"]["message"])
    except (LookupError, ValueError, TypeError):
        return f"/readyz answers {answer.status_code}."
