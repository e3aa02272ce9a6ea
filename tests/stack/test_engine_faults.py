"""The real engine restarts, dies, hangs and loses its clients: everybody gets an honest end."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT, Stack

pytestmark = pytest.mark.stack

QUESTION = [{"role": "user", "content": "你好"}]
HUNG_SECONDS = 15
RECOVERED_SECONDS = 15
RESTARTED_SECONDS = 180
CANCELS = 200


def request(tokens: int, *, stream: bool) -> dict[str, Any]:
    """An answer of exactly so many tokens."""
    return {"messages": QUESTION, "max_tokens": tokens, "ignore_eos": True, "stream": stream}


@dataclass(frozen=True)
class End:
    """How one request ended, as its client saw it."""

    status: int
    body: bytes
    retry_after: str | None

    @property
    def is_answer(self) -> bool:
        """A whole answer, or a stream to its end."""
        ended = b"data: [DONE]" in self.body or b'"chat.completion"' in self.body
        return self.status == 200 and ended and b'{"error"' not in self.body

    @property
    def is_refusal(self) -> bool:
        """503 that says when to come back."""
        return self.status == 503 and (self.retry_after or "").isdecimal()

    @property
    def is_broken_stream(self) -> bool:
        """One error event at its end; vLLM puts its own [DONE] behind an error of its own."""
        return self.status == 200 and self.body.count(b'data: {"error"') == 1


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> End:
    """Ask through nginx and read to the end."""
    response = await client.post("/v1/chat/completions", json=body)
    return End(response.status_code, response.content, response.headers.get("retry-after"))


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a stack that is ready, whatever the test before it has done."""
    await until(lambda: is_ready(stack), RESTARTED_SECONDS, "the stack is ready")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=stack.url, timeout=240, limits=limits, trust_env=False) as client:
        yield client


async def sample(stack: Stack, service: str, name: str) -> float:
    """Read one figure of a service's own metrics, summed over its labels; `name` may carry some of them."""
    async with httpx.AsyncClient(trust_env=False) as client:
        page = (await client.get(f"http://127.0.0.1:{stack.ports[service]}/metrics")).text
    series, _, labels = name.partition("{")
    rows = re.findall(rf"^{series}(?:{{(.*)}})? (\S+)$", page, flags=re.MULTILINE)
    wanted = set(labels.rstrip("}").split(",")) - {""}
    return sum(float(value) for found, value in rows if wanted <= set(found.split(",")))


async def until(condition: Any, seconds: float, what: str) -> float:
    """Wait for something that sends no event; return how long it took."""
    started_at = time.monotonic()
    while not await condition():
        assert time.monotonic() - started_at < seconds, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)
    return time.monotonic() - started_at


async def is_ready(stack: Stack) -> bool:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"http://127.0.0.1:{stack.ports['GATEWAY_PORT']}/readyz")).status_code == 200


async def running(stack: Stack) -> float:
    return await sample(stack, "ENGINE_PORT", "vllm:num_requests_running")


def outcomes(ends: list[End]) -> dict[str, int]:
    """Count how requests ended."""
    names = ("is_answer", "is_refusal", "is_broken_stream")
    return Counter(next((name for name in names if getattr(end, name)), f"status {end.status}") for end in ends)


def supervisorctl(stack: Stack, *arguments: str) -> str:
    command = [ROOT / ".venv/bin/supervisorctl", "-c", stack.run_dir / "supervisord.conf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def descendants(pid: int) -> Iterator[int]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from descendants(int(child))


def core_of(stack: Stack) -> int:
    """Return the process in which vLLM computes."""
    launcher = int(supervisorctl(stack, "pid", "vllm"))
    found = [pid for pid in descendants(launcher) if "EngineCor" in Path(f"/proc/{pid}/comm").read_text()]
    assert len(found) == 1, found
    return found[0]


async def test_restart_under_20_open_and_50_arriving(stack: Stack, client: httpx.AsyncClient) -> None:
    """In order, as by `docker compose restart vllm`: what is open finishes, what arrives waits or is refused."""
    opened = [asyncio.create_task(ask(client, request(150, stream=bool(number % 2)))) for number in range(20)]
    await until(lambda: _at_least(stack, 1), 30, "the engine works")
    restart = asyncio.create_task(asyncio.to_thread(supervisorctl, stack, "restart", "vllm"))
    arriving = []
    for number in range(50):
        arriving.append(asyncio.create_task(ask(client, request(8, stream=bool(number % 2)))))
        await asyncio.sleep(0.05)
    ends = await asyncio.wait_for(asyncio.gather(*opened, *arriving), RESTARTED_SECONDS)
    await restart
    print(f"\nrestart: open {outcomes(ends[:20])}, arriving {outcomes(ends[20:])}")
    assert set(outcomes(ends)) <= {"is_answer", "is_refusal"}
    assert outcomes(ends[20:])["is_answer"] > 0
    await until(lambda: is_ready(stack), RESTARTED_SECONDS, "the engine is ready again")
    assert await sample(stack, "GATEWAY_PORT", "gateway_queue_depth") == 0


async def _at_least(stack: Stack, wanted: float) -> bool:
    return await running(stack) >= wanted


async def test_crash_loses_nobody_silently(stack: Stack, client: httpx.AsyncClient) -> None:
    """By SIGKILL: what the engine was answering is cut, visibly; what arrives waits for the engine to return."""
    opened = [asyncio.create_task(ask(client, request(1000, stream=bool(number % 2)))) for number in range(10)]
    await until(lambda: _at_least(stack, 1), 30, "the engine works")
    os.kill(core_of(stack), signal.SIGKILL)
    arriving = []
    for number in range(20):
        arriving.append(asyncio.create_task(ask(client, request(8, stream=bool(number % 2)))))
        await asyncio.sleep(0.05)
    cut = await asyncio.wait_for(asyncio.gather(*opened), RESTARTED_SECONDS)
    late = await asyncio.wait_for(asyncio.gather(*arriving), RESTARTED_SECONDS)
    print(f"\ncrash: open {outcomes(cut)}, arriving {outcomes(late)}")
    assert set(outcomes(cut)) <= {"is_broken_stream", "is_refusal", "status 502"}
    # Who arrived before the engine itself had noticed was let in, and has lost its answer with it.
    assert set(outcomes(late)) <= {"is_answer", "is_refusal", "is_broken_stream", "status 502"}
    assert outcomes(late)["is_answer"] > 0
    await until(lambda: is_ready(stack), RESTARTED_SECONDS, "the engine is ready again")
    assert (await ask(client, request(8, stream=False))).is_answer


async def test_hung_engine_is_out_and_back_in_time(stack: Stack, client: httpx.AsyncClient) -> None:
    """SIGSTOP to the process that computes; its /health goes on saying 200."""
    core = core_of(stack)
    caught = [asyncio.create_task(ask(client, request(1000, stream=True))) for _ in range(4)]
    await until(lambda: _at_least(stack, 4), 30, "the engine works")
    os.kill(core, signal.SIGSTOP)
    try:
        async with httpx.AsyncClient(trust_env=False) as direct:
            health = await direct.get(f"http://127.0.0.1:{stack.ports['ENGINE_PORT']}/health", timeout=5)
        assert health.status_code == 200, "the engine does not know that it hangs"
        out = await until(lambda: _not_ready(stack), HUNG_SECONDS, "the hung engine is taken out")
    finally:
        os.kill(core, signal.SIGCONT)
    back = await until(lambda: is_ready(stack), RECOVERED_SECONDS, "the engine is taken back")
    print(f"\nhung engine: out after {out:.1f} s, back after {back:.1f} s")
    ends = await asyncio.wait_for(asyncio.gather(*caught), 120)
    assert set(outcomes(ends)) <= {"is_answer", "is_broken_stream"}
    assert (await ask(client, request(8, stream=False))).is_answer


async def _not_ready(stack: Stack) -> bool:
    return not await is_ready(stack)


async def leave(stack: Stack, number: int) -> None:
    """Ask, and leave before the answer, during the prefill or in the middle of the stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.ports["GATEWAY_PORT"])
    body = httpx.Request("POST", stack.url, json=request(1500, stream=number % 3 > 0)).read()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: stack\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    if number % 3 == 1:
        await reader.readuntil(b"data: ")
    elif number % 3 == 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05 * (number % 4))
    writer.close()
    await writer.wait_closed()


async def test_cancels_free_the_engine_and_are_confirmed(stack: Stack, client: httpx.AsyncClient) -> None:
    """Its own gauge goes to 0 within a second of the last; the gateway counts each as confirmed."""
    disconnected = 'gateway_requests_total{route="chat_completions",outcome="disconnected"}'
    asked = await sample(stack, "GATEWAY_PORT", disconnected)
    aborts = 'gateway_aborts_total{confirmed="yes"}'
    confirmed = await sample(stack, "GATEWAY_PORT", aborts)
    unconfirmed = 'gateway_aborts_total{confirmed="no"}'
    failed = await sample(stack, "GATEWAY_PORT", unconfirmed)
    for start in range(0, CANCELS, 20):
        await asyncio.gather(*(leave(stack, start + number) for number in range(20)))
    freed = await until(lambda: _idle(stack), 1, "the engine is free")
    print(f"\n{CANCELS} cancels: engine free after {freed:.2f} s")

    async def all_counted() -> bool:
        return await sample(stack, "GATEWAY_PORT", disconnected) == asked + CANCELS

    await until(all_counted, 10, "every client that left is counted once")
    await until(lambda: _settled(stack), 10, "no request is in flight")
    assert await sample(stack, "GATEWAY_PORT", unconfirmed) == failed
    assert await sample(stack, "GATEWAY_PORT", aborts) > confirmed


async def _idle(stack: Stack) -> bool:
    return await running(stack) == 0


async def _settled(stack: Stack) -> bool:
    return await sample(stack, "GATEWAY_PORT", "gateway_requests_in_flight") == 0
