"""A question through the front door, and the signs of a broken engine in what comes back."""

import json
import re
import time
from collections.abc import Iterator

import httpx

QUESTION = "你好"
TOKENS = 64
ANSWER_SECONDS = 120
SLOW_SECONDS = 20
# As the gateway's own trials have it: a unit of up to eight characters, ten times in a row to the end.
_ENDLESS = re.compile(r"(.{1,8}?)\1{9,}$", re.DOTALL)
_SPECIAL = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?s>|<unk>|<pad>|<mask:\d+>")


def ask(url: str, key: str) -> tuple[bool, list[str]]:
    """Return whether the stack answers, and what there is to say of it; without a needed key readiness decides."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(trust_env=False, timeout=ANSWER_SECONDS, headers=headers) as client:
        try:
            ready = client.get(f"{url}/readyz", timeout=5)
            if ready.status_code != httpx.codes.OK:
                return False, [_refusal(ready, "/readyz")]
            models = client.get(f"{url}/v1/models")
            if models.status_code == httpx.codes.UNAUTHORIZED:
                return True, ["keys are on and STACK_API_KEY holds none: nothing was asked, it says it is ready"]
            if models.status_code != httpx.codes.OK:
                return False, [_refusal(models, "the list of models")]
            began = time.monotonic()
            answer = client.post(f"{url}/v1/chat/completions", json=_question(models.json()["data"][0]["id"]))
        except (httpx.HTTPError, LookupError, ValueError) as error:
            return False, [f"a question through {url} failed: {type(error).__name__}: {error}"]
    if answer.status_code != httpx.codes.OK:
        return answer.status_code == httpx.codes.TOO_MANY_REQUESTS, [_refusal(answer, "the answer")]
    return True, list(read(answer.text, time.monotonic() - began))


def read(body: str, seconds: float) -> Iterator[str]:
    """Return what is to be said of a whole answer."""
    try:
        choice = json.loads(body)["choices"][0]
        text, reason = choice["message"]["content"] or "", choice["finish_reason"]
    except (ValueError, LookupError, TypeError):
        yield "the answer broke off: it is no whole chat completion"
        return
    if not text.strip():
        yield "the answer was empty"
    elif "\ufffd" in text:
        yield "the answer held U+FFFD: broken characters"
    elif _SPECIAL.search(text):
        yield "the answer held special tokens"
    elif _ENDLESS.search(text[-80:]):
        yield "the answer repeated itself without end"
    if not reason:
        yield "the answer ended without a finish reason"
    if seconds > SLOW_SECONDS:
        yield f"the answer took {seconds:.1f} s, which is slow"
    else:
        yield f"the answer took {seconds:.1f} s"


def _question(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": TOKENS}


def _refusal(answer: httpx.Response, what: str) -> str:
    try:
        error = answer.json()["error"]
        return f"{what} was {answer.status_code} {error['code']}: {error['message']}"
    except (ValueError, LookupError, TypeError):
        return f"{what} was {answer.status_code}"
