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


def wait_until_ready(url: str, seconds: float, on_wait: Callable[[str], None]) -> None:
    """Ask `/readyz` until it says 200. `on_wait` gets the reason at each try and may raise to give up early."""
    deadline = time.monotonic() + seconds
    with httpx.Client(trust_env=False, timeout=5) as client:
        while True:
            reason = _readiness(client, url)
            if reason is None:
                return
            on_wait(reason)
            if time.monotonic() > deadline:
                raise StackError(f"Not ready after {seconds:.0f} s: {reason}. Longer: STACK_START_TIMEOUT_SECONDS.")
            time.sleep(POLL_SECONDS)


def ask(url: str) -> Answer:
    """Ask one question through the API and load the page; raises `StackError` if either does not work."""
    started = time.monotonic()
    with httpx.Client(trust_env=False, timeout=ANSWER_TIMEOUT_SECONDS) as client:
        try:
            model = client.get(f"{url}/v1/models").raise_for_status().json()["data"][0]["id"]
            question = {
                "model": model,
                "messages": [{"role": "user", "content": QUESTION}],
                "max_tokens": ANSWER_TOKENS,
            }
            reply = client.post(f"{url}/v1/chat/completions", json=question).raise_for_status().json()
            page = client.get(f"{url}/").raise_for_status()
        except (httpx.HTTPError, LookupError, ValueError) as error:
            raise StackError(f"The stack is up, but a question through {url} failed: {error}") from error
    text = reply["choices"][0]["message"]["content"] or ""
    if not text.strip():
        raise StackError("The engine answered with an empty text; see `make status` and the engine's log.")
    if "text/html" not in page.headers.get("content-type", ""):
        raise StackError(f"{url}/ does not show the chat page.")
    return Answer(model, text.strip(), time.monotonic() - started)


def _readiness(client: httpx.Client, url: str) -> str | None:
    try:
        answer = client.get(f"{url}/readyz")
    except httpx.HTTPError:
        return "the front door does not answer yet"
    if answer.status_code == httpx.codes.OK:
        return None
    try:
        return str(answer.json()["error"]["message"])
    except (LookupError, ValueError, TypeError):
        return f"/readyz answers {answer.status_code}"
