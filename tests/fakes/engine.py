"""A scriptable vLLM on a real socket: it does exactly what a test says, down to the byte and the FIN.

Health, models, metrics and the gateway's own trial generations are answered from attributes; every other request
runs the script of the moment and is kept in `calls`.
"""

import asyncio
import json
from typing import Any, Self

from tests.fakes.call import Call
from tests.fakes.events import DONE, EVENTS, MODEL, STREAM, TEXT, completion, event, usage_event
from tests.fakes.scripts import Script, after_events, answer, count, hold
from tests.fakes.server import Server

# What nearly every test of a fault needs, in one import.
__all__ = [
    "DONE",
    "EVENTS",
    "STREAM",
    "TEXT",
    "Call",
    "FakeEngine",
    "Script",
    "after_events",
    "answer",
    "completion",
    "event",
    "hold",
    "usage_event",
]

TRIAL_PREFIX = "trial-"


class FakeEngine:
    """The engine; an asynchronous context manager that listens on a free port of 127.0.0.1 unless told otherwise."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.script: Script = answer
        self.trial_script: Script = answer
        self.count_script: Script = count
        self.calls: list[Call] = []
        self.trials: list[Call] = []
        self.called = asyncio.Condition()
        self.health_status = 200
        self.health_delay_seconds = 0.0
        self.models: list[dict[str, Any]] = [
            {"id": MODEL, "object": "model", "owned_by": "vllm", "root": "/models/demo", "max_model_len": 2048}
        ]
        self.running = 0.0
        self.waiting = 0.0
        self.generated_tokens = 0.0
        # Added to the token counter at every look at it: an engine that works; 0: one that stands still.
        self.tokens_per_look = 0.0
        self.started_at = 1.0
        # As vLLM counts: what it is working on. None: count the calls that have not ended.
        self.fixed_running: float | None = None
        self.server = Server(self.handle, host, port)

    @property
    def port(self) -> int:
        """The port, once started."""
        return self.server.port

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        return self.server.connections

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if it was started once."""
        await self.server.start()

    async def stop(self) -> None:
        """Refuse connections and cut those that are open."""
        await self.server.stop()

    async def next_call(self, number: int = 1, timeout_seconds: float = 5.0) -> Call:
        """Wait for the call of that number, counted from 1, and return it."""
        async with asyncio.timeout(timeout_seconds), self.called:
            await self.called.wait_for(lambda: len(self.calls) >= number)
        return self.calls[number - 1]

    async def handle(self, call: Call) -> None:
        """Answer one request."""
        if call.path == "/health":
            await asyncio.sleep(self.health_delay_seconds)
            call.whole(self.health_status, b"")
        elif call.path == "/v1/models":
            call.whole(200, json.dumps({"object": "list", "data": self.models}).encode())
        elif call.path == "/tokenize":
            self.calls.append(call)
            await self.count_script(call)
        elif call.path == "/metrics":
            self.generated_tokens += self.tokens_per_look
            call.whole(200, self._metrics())
        elif (call.header("x-request-id") or "").startswith(TRIAL_PREFIX):
            self.trials.append(call)
            await self.trial_script(call)
        else:
            self.calls.append(call)
            async with self.called:
                self.called.notify_all()
            await self._run_script(call)

    async def _run_script(self, call: Call) -> None:
        self.running += 1
        try:
            await self.script(call)
        finally:
            self.running -= 1

    def _metrics(self) -> bytes:
        running = self.running if self.fixed_running is None else self.fixed_running
        labels = '{model_name="ernie-demo",engine="0"}'
        return (
            f"# HELP vllm:num_requests_running Running.\nvllm:num_requests_running{labels} {running}\n"
            f"vllm:num_requests_waiting{labels} {self.waiting}\n"
            f"vllm:generation_tokens_total{labels} {self.generated_tokens}\n"
            f"process_start_time_seconds {self.started_at}\n"
        ).encode()
