"""A streamed answer: whole events as they come, heartbeats in silence.

Usage that only the gateway asked for is taken out.
"""

import time
from dataclasses import dataclass

from gateway.errors import Outcome, UpstreamTimeout, UpstreamTruncated
from gateway.relay.interruptions import Watch
from gateway.relay.patience import Patience
from gateway.relay.refusal import refusal_in_stream
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

    def __init__(self, answer: Answer, reply: Reply, patience: Patience, watch: Watch, times: StreamTimes) -> None:
        self._answer = answer
        self._reply = reply
        self._patience = patience
        self._watch = watch
        self._times = times

    async def relay(self, exchange: Exchange, *, hide_usage: bool) -> None:
        """Pass the stream on to its end; raise GatewayError if the engine does not bring it there."""
        meter = StreamMeter(hide_usage=hide_usage)
        try:
            await self._pass_events(exchange, meter)
            if not meter.done:
                await self._close_unfinished(meter)
        finally:
            exchange.prompt_tokens = meter.prompt_tokens
            exchange.completion_tokens = meter.completion_tokens
        exchange.outcome = Outcome.UPSTREAM_ERROR if meter.failed else Outcome.OK
        await self._answer.finish(AFTER_DONE_SECONDS)

    async def _pass_events(self, exchange: Exchange, meter: StreamMeter) -> None:
        """Forward until `[DONE]` or the end of the body."""
        splitter = EventSplitter()
        limit = self._times.first_token - (time.perf_counter() - exchange.engine_called_at)
        while chunk := await self._next_chunk(limit):
            limit = self._times.idle
            arrived = splitter.feed(chunk)
            if not arrived:
                continue
            events = meter.take(arrived)
            if not exchange.engine_answered_at:
                exchange.engine_answered_at = time.perf_counter()
            if not self._reply.started:
                if meter.failed and (refusal := refusal_in_stream(arrived)):
                    raise refusal
                await self._reply.start_stream()
            if meter.done:
                self._watch.stop()
            if events or meter.done:
                await self._reply.send_events(events, last=meter.done)
            if not exchange.answer_started_at:
                exchange.answer_started_at = time.perf_counter()
            if meter.done:
                return

    async def _close_unfinished(self, meter: StreamMeter) -> None:
        """End a stream that lacks its `[DONE]`: the engine's own error event is enough, else it gets ours."""
        if not meter.failed:
            raise UpstreamTruncated("The engine's answer ended before it was complete. Try again.")
        self._watch.stop()
        await self._reply.send_events(b"", last=True)

    async def _next_chunk(self, limit_seconds: float) -> bytes:
        """Return what the engine sends next, telling the client that it is being waited for."""
        waited = 0.0
        while True:
            step = min(self._times.heartbeat, limit_seconds - waited)
            try:
                return await self._patience.wait(self._answer.read(), step)
            except TimeoutError:
                waited += step
            if waited >= limit_seconds:
                raise UpstreamTimeout(f"The engine was silent for {limit_seconds:.0f} s. Try again.")
            if not self._reply.started:
                await self._reply.start_stream()
            await self._reply.send_heartbeat()
