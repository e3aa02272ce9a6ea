"""Whether answers are sound, refusals honest, and what is left behind is given up."""

import asyncio
import re
import time
from collections.abc import Iterable

import httpx

from ops.acceptance.asking import QUESTIONS, Asker
from ops.acceptance.check import RAISE_LIMITS, Check, Verdict, skipped
from ops.figures import total
from ops.way import StackWay

ABORT_SECONDS = 5
LONG_TOKENS = 1500
POLL_SECONDS = 0.1
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_BROKEN = re.compile(r"\ufffd|<\|[^|<>\s]{1,40}\|>|</s>")


async def chinese(asker: Asker) -> Iterable[Check]:
    """A Chinese question gets Chinese text, whole characters, and nothing of the template."""
    limit = "Chinese, whole characters, no marks"
    await asker.room_for(1)
    reply = await asker.ask(QUESTIONS[0])
    if reply.is_limited:
        return [skipped("Chinese text", limit, RAISE_LIMITS)]
    is_good = not reply.fault and bool(_CHINESE.search(reply.text)) and not _BROKEN.search(reply.text)
    verdict = Verdict.PASS if is_good else Verdict.FAIL
    return [Check("Chinese text", limit, reply.text[:40] or reply.fault, verdict, reply.fault)]


async def errors(asker: Asker) -> Iterable[Check]:
    """What is wrong is refused in the API's own shape; none of it counts against this client."""
    path = "/v1/chat/completions"
    calls = {
        "no JSON": (400, asker.client.post(path, content=b"{", headers={"content-type": "application/json"})),
        "a forbidden field": (400, asker.client.post(path, json=asker.body("hi") | {"chat_template": "x"})),
        "an unknown path": (404, asker.client.get("/v1/nothing")),
        "an inner path": (404, asker.client.get("/metrics")),
    }
    checks = []
    for name, (status, call) in calls.items():
        try:
            answer = await call
            told = answer.json().get("error", {}) if "json" in answer.headers.get("content-type", "") else {}
            measured = f"{answer.status_code} {told.get('code') or 'without a code'}"
            is_good = answer.status_code == status and bool(told.get("message"))
        except (httpx.HTTPError, ValueError) as error:
            measured, is_good = type(error).__name__, False
        verdict = Verdict.PASS if is_good else Verdict.FAIL
        checks.append(Check(f"{name} is refused", f"{status} with a message", measured, verdict))
    return checks


async def abort(asker: Asker, way: StackWay) -> Iterable[Check]:
    """A client that leaves frees the engine, by the gateway's own count."""
    name, limit = "leaving a stream frees the engine", f"≤ {ABORT_SECONDS} s"
    await asker.room_for(1)
    before = _aborts(await asyncio.to_thread(way.fetch, "gateway", "/metrics"))
    try:
        body = asker.body(QUESTIONS[2], LONG_TOKENS)
        async with asker.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
                return [skipped(name, limit, RAISE_LIMITS)]
            await anext(answer.aiter_bytes())
    except httpx.HTTPError as error:
        return [Check(name, limit, "", Verdict.FAIL, type(error).__name__)]
    left_at = time.monotonic()
    while time.monotonic() - left_at < ABORT_SECONDS:
        if _aborts(await asyncio.to_thread(way.fetch, "gateway", "/metrics")) > before:
            return [Check(name, limit, f"{time.monotonic() - left_at:.1f} s", Verdict.PASS)]
        await asyncio.sleep(POLL_SECONDS)
    return [Check(name, limit, f"not in {ABORT_SECONDS} s", Verdict.FAIL, "or the answer was over before")]


async def limits(asker: Asker, streams: int | None) -> Iterable[Check]:
    """One stream more than a client may have is refused, with the time to wait; None: nobody knows how many."""
    name, limit = "one stream too many is refused", "429 with Retry-After"
    if streams is None:
        return [skipped(name, limit, "what this key may is known to the gateway alone, or limits are off")]
    if not await asker.room_for(streams + 1):
        return [skipped(name, limit, RAISE_LIMITS)]
    requests = [
        asker.client.build_request("POST", "/v1/chat/completions", json=asker.body(QUESTIONS[2], LONG_TOKENS))
        for _ in range(streams + 1)
    ]
    answers = await asyncio.gather(*(asker.client.send(request, stream=True) for request in requests))
    try:
        refused = [answer for answer in answers if answer.status_code == httpx.codes.TOO_MANY_REQUESTS]
        waits = {answer.headers.get("retry-after", "") for answer in refused}
    finally:
        await asyncio.gather(*(answer.aclose() for answer in answers))
    is_good = len(refused) >= 1 and all(wait.isdigit() and int(wait) > 0 for wait in waits)
    measured = f"{len(refused)} of {streams + 1} refused, wait {', '.join(sorted(waits)) or 'none'} s"
    verdict = Verdict.PASS if is_good else Verdict.FAIL
    reason = "" if refused else "answers were over too soon to be many at a time"
    if not refused:
        return [skipped(name, limit, reason, measured)]
    return [Check(name, limit, measured, verdict, reason)]


def _aborts(metrics: str | None) -> float:
    return total(metrics, "gateway_aborts_total", confirmed="yes")
