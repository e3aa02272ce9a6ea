"""An engine that is modelled: it runs so many sequences, one token each a step, and queues the rest, first come first.

It is tests/fakes' engine on a real socket, and publishes vLLM's figures of what runs and what waits.
"""

import asyncio
import json
from collections import deque

from tests.fakes.call import Call
from tests.fakes.engine import FakeEngine
from tests.fakes.events import DONE, usage_event

EVENT = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


class ModelledEngine(FakeEngine):
    """Steps take `step_seconds` and `sequence_seconds` for each sequence in them."""

    def __init__(self, sequences: int, step_seconds: float, sequence_seconds: float = 0.0) -> None:
        super().__init__()
        self.sequences = sequences
        self._step_seconds = step_seconds
        self._sequence_seconds = sequence_seconds
        self._queue: deque[_Sequence] = deque()
        self._batch: list[_Sequence] = []
        self._work = asyncio.Event()
        self._stepping: asyncio.Task[None] | None = None
        self.most_waiting = 0
        self.script = self._generate

    async def start(self) -> None:
        """Listen and step."""
        await super().start()
        self._stepping = asyncio.create_task(self._step_on())

    async def stop(self) -> None:
        """Stop both."""
        if self._stepping:
            self._stepping.cancel()
        await super().stop()

    async def _generate(self, call: Call) -> None:
        sequence = _Sequence(call)
        self._queue.append(sequence)
        self._work.set()
        try:
            await sequence.ended.wait()
        finally:
            if sequence in self._queue:
                self._queue.remove(sequence)
            if sequence in self._batch:
                self._batch.remove(sequence)

    async def _step_on(self) -> None:
        while True:
            if not self._queue and not self._batch:
                self._work.clear()
                await self._work.wait()
            while self._queue and len(self._batch) < self.sequences:
                self._batch.append(self._queue.popleft())
            self.waiting = float(len(self._queue))
            self.most_waiting = max(self.most_waiting, len(self._queue))
            self.fixed_running = float(len(self._batch))
            await asyncio.sleep(self._step_seconds + self._sequence_seconds * len(self._batch))
            for sequence in list(self._batch):
                self.generated_tokens += 1
                if sequence.step():
                    self._batch.remove(sequence)
            self.fixed_running = float(len(self._batch))


class _Sequence:
    def __init__(self, call: Call) -> None:
        self._call = call
        self._tokens = int(json.loads(call.body)["max_tokens"])
        self._made = 0
        self.ended = asyncio.Event()

    def step(self) -> bool:
        """Make a token; tell whether it was the last."""
        if not self._made:
            self._call.stream_head()
        self._made += 1
        self._call.chunk(EVENT)
        if self._made < self._tokens:
            return False
        self._call.chunk(usage_event(16, self._tokens))
        self._call.chunk(DONE)
        self._call.end()
        self.ended.set()
        return True
