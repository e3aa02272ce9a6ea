"""A streamed answer: whole events as they come, heartbeats in silence.

Usage that only the gateway asked for is taken out.
"""

import time
from dataclasses import dataclass

from gateway.errors import GatewayError, Outcome, UpstreamTimeout, UpstreamTruncated
from gateway.relay.interruptions import Watch
from gateway.relay.refusal import cut_at_error
from gateway.relay.reply import Reply
from gateway.schemas import Exchange
from gateway.sse import EventSplitter
from gateway.upstreams import Answer
from gateway.usage import StreamMeter

# After [DONE] only the end of the body is missing.
AFTER_DONE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """How long a stream may be silent, in seconds: before its first event, between two, before a comment."""

    first_token: float
    idle: float
    heartbeat: float


class Stream:
    """One streamed answer on its way from the engine to the client."""

    def __init__(self, answer: Answer, reply: Reply, watch: Watch, times: StreamTimes, meter: StreamMeter) -> None:
        self._answer = answer
        self._reply = reply
        self._patience = reply.patience
        self._watch = watch
        self._times = times
        self._splitter = EventSplitter()
        self._meter = meter
        self._step_seconds = min(times.heartbeat, times.idle)
        # Its first events are sent: from here on it is passed on without waking its task, as far as that goes.
        self._flows = False
        # So many pieces were passed on. A wait in which that grew was renewed.
        self._passed = 0

    async def relay(self, exchange: Exchange) -> None:
        """Pass the stream on to its end; raise GatewayError if the engine does not bring it there."""
        meter = self._meter
        try:
            await self._pass_events(exchange)
            if not meter.done:
                raise UpstreamTruncated("The engine's answer ended before it was complete. Try again.")
        finally:
            exchange.prompt_tokens = meter.prompt_tokens
            exchange.completion_tokens = meter.completion_tokens
        exchange.outcome = Outcome.OK
        await self._answer.finish(AFTER_DONE_SECONDS)

    async def _pass_events(self, exchange: Exchange) -> None:
        """Forward until `[DONE]` or the end of the body."""
        meter = self._meter
        limit = self._times.first_token - (time.perf_counter() - exchange.engine_called_at)
        while not meter.done and (chunk := await self._next_chunk(limit)):
            limit = self._times.idle
            if arrived := self._splitter.feed(chunk):
                await self._forward(meter.take(arrived), exchange)
                self._flows = True

    async def _forward(self, events: bytes, exchange: Exchange) -> None:
        """Send a block of whole events; raise the error that one of them is, after those before it."""
        meter = self._meter
        fault: GatewayError | None = None
        if meter.failed:
            events, fault = cut_at_error(events)
        if fault and not events:
            raise fault
        if not exchange.engine_answered_at:
            exchange.engine_answered_at = time.perf_counter()
        if not self._reply.started:
            await self._reply.start_stream()
        is_last = meter.done and fault is None
        if is_last:
            self._watch.stop()
        if events or is_last:
            await self._reply.send_events(events, last=is_last)
        if not exchange.answer_started_at:
            exchange.answer_started_at = time.perf_counter()
        if fault:
            raise fault

    async def _next_chunk(self, limit_seconds: float) -> bytes:
        """Return what the engine sends next, telling the client that it is being waited for."""
        waited = 0.0
        while True:
            step, passed = min(self._times.heartbeat, limit_seconds - waited), self._passed
            try:
                return await self._patience.wait(self._answer.read(self._pass_on if self._flows else None), step)
            except TimeoutError:
                waited = waited + step if passed == self._passed else self._step_seconds
            if waited >= limit_seconds:
                raise UpstreamTimeout(f"The engine was silent for {limit_seconds:.0f} s. Try again.")
            if not self._reply.started:
                await self._reply.start_stream()
            await self._reply.send_heartbeat()

    def _pass_on(self, chunk: bytes) -> bool:
        """Pass on what needs no thought: text, in whole events, for a client that takes it now."""
        if not (self._splitter.is_whole(chunk) and self._meter.is_plain(chunk) and self._reply.pass_events(chunk)):
            return False
        self._meter.count(chunk)
        self._answer.note_received()
        self._passed += 1
        self._patience.renew(self._step_seconds)
        return True
