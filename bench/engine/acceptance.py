"""The acceptance figures that the tutorials ask for (20 requests five at a time, 16 at once, first reply), streamed."""

import http.client
import json
import threading
import time
from dataclasses import dataclass
from typing import Any

from bench.engine.result import rounded

_TIMEOUT_SECONDS = 60.0
_QUESTION = "请用三句话介绍一下春天的江南。"


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request brought; seconds from asking, `fault` empty if all was well."""

    first_token_seconds: float
    whole_seconds: float
    tokens: int
    fault: str = ""


def accept(port: int, model: str) -> dict[str, Any]:
    """Ask as the acceptance test does and return its figures; the limits are needs.md's N16."""
    first = ask(port, model, 64)
    five = many(port, model, 64, requests=20, at_once=5)
    sixteen = many(port, model, 64, requests=16, at_once=16)
    return {
        "first_reply_seconds": rounded(first.whole_seconds),
        "first_reply_fault": first.fault,
        "twenty_five_at_a_time": _figures(five),
        "sixteen_at_once": _figures(sixteen),
        "limits": {"first_reply_seconds": 1.8, "mean_seconds": 2.1, "first_token_seconds": 0.3, "failures": 0},
    }


def many(port: int, model: str, tokens: int, *, requests: int, at_once: int) -> list[Reply]:
    """Ask so often, so many at a time."""
    replies: list[Reply] = []
    turns = iter(range(requests))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(turns, None) is None:
                    return
            reply = ask(port, model, tokens)
            with lock:
                replies.append(reply)

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def ask(port: int, model: str, tokens: int) -> Reply:
    """Ask once, streamed; never raises for what the server does."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": _QUESTION}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            return Reply(0.0, time.monotonic() - began, 0, f"status {answer.status}")
        return _read(answer, began)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Reply(0.0, time.monotonic() - began, 0, type(error).__name__)
    finally:
        connection.close()


def _read(answer: http.client.HTTPResponse, began: float) -> Reply:
    first, tokens, finished = 0.0, 0, False
    for line in answer:
        data = line.removeprefix(b"data: ").strip()
        if line.startswith(b"data: ") and data == b"[DONE]":
            finished = True
        elif line.startswith(b"data: "):
            event = json.loads(data)
            if "error" in event:
                return Reply(first, time.monotonic() - began, tokens, "error event")
            choices = event.get("choices") or []
            if not first and choices and choices[0]["delta"].get("content"):
                first = time.monotonic() - began
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    fault = "" if finished and tokens else "no end"
    return Reply(first, time.monotonic() - began, tokens, fault)


def _figures(replies: list[Reply]) -> dict[str, Any]:
    sound = [reply for reply in replies if not reply.fault]
    firsts = sorted(reply.first_token_seconds for reply in sound)
    wholes = [reply.whole_seconds for reply in sound]
    return {
        "requests": len(replies),
        "failures": [reply.fault for reply in replies if reply.fault],
        "mean_seconds": rounded(sum(wholes) / len(wholes)) if wholes else None,
        "longest_seconds": rounded(max(wholes)) if wholes else None,
        "first_token_p50_seconds": rounded(firsts[len(firsts) // 2]) if firsts else None,
        "first_token_longest_seconds": rounded(firsts[-1]) if firsts else None,
        "tokens": sum(reply.tokens for reply in sound),
    }
