"""One request's way to an engine and back.

The status is decided before the first header leaves: a streamed answer begins with the engine's first event,
or with a heartbeat once the engine has accepted the request. After that every fault is one error event.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from starlette.types import Send

from gateway.errors import (
    ClientDisconnected,
    GatewayError,
    Outcome,
    Overloaded,
    UpstreamFault,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnavailable,
    untie,
)
from gateway.relay.interruptions import InFlight, Watch
from gateway.relay.patience import Patience
from gateway.relay.refusal import refusal_of
from gateway.relay.reply import Reply
from gateway.relay.stream import Stream, StreamTimes
from gateway.schemas import Exchange, Generation, Line
from gateway.sse import waiting_comment
from gateway.upstreams import Answer, Engine, EngineClient
from gateway.usage import StreamMeter, usage_in

# Waits until an engine takes the request, telling the client its place and the seconds left; leaving the context gives
# the place at the engine back. Raises NotReady, Overloaded or ShuttingDown.
Tell = Callable[[int, float | None], Awaitable[None]]
Admit = Callable[[Exchange, Generation, Tell], Awaitable[AbstractContextManager[Engine]]]
# A whole answer is held until it is complete, so that its status is still open: eight choices of long texts
# with logprobs are some 30 MiB.
MAX_ANSWER_BYTES = 67_108_864
# A look takes a fraction of a second; an engine that leaves it unanswered for longer is dealt with as it is.
LOOK_SECONDS = 5.0
_OK = 200


@dataclass(frozen=True, slots=True)
class RelayTimes:
    """How long a request may wait: for a whole answer, and in a stream; in seconds."""

    answer: float
    stream: StreamTimes


@dataclass(frozen=True, slots=True)
class _Job:
    exchange: Exchange
    generation: Generation
    reply: Reply
    patience: Patience
    watch: Watch

    async def tell_place(self, place: int, seconds_left: float | None) -> None:
        """Tell a streaming client that it waits, and where; others cannot be told."""
        if not self.generation.stream:
            return
        if not self.reply.started:
            await self.reply.start_stream()
        await self.reply.send_events(waiting_comment(place, seconds_left), last=False)


class Relay:
    """Relays checked requests; every lease, connection and timer is given back however they end."""

    def __init__(self, client: EngineClient, in_flight: InFlight, admit: Admit, times: RelayTimes) -> None:
        self._admit = admit
        self._client = client
        self._in_flight = in_flight
        self._times = times

    async def run(self, exchange: Exchange, generation: Generation, patience: Patience, line: Line, send: Send) -> None:
        """Answer one request.

        Raises GatewayError if nothing was sent yet, ClientDisconnected if nobody is left to answer. Either way,
        and when cancelled, the engine's work for it has been ended.
        """
        exchange.streamed = generation.stream
        reply = Reply(send, line, patience, self._times.stream.idle)
        try:
            with self._in_flight.watch(patience.task, line) as watch:
                await self._ask_engines(_Job(exchange, generation, reply, patience, watch))
        except GatewayError as error:
            if not reply.started:
                raise
            exchange.outcome = error.outcome_mid_stream if exchange.engine_answered_at else error.outcome
            exchange.error_code = error.code
            await reply.end_with(error)
            untie(error)

    async def _ask_engines(self, job: _Job) -> None:
        """Ask one engine, and another only if the first could not even be connected to; wait while there is none."""
        while True:
            with await self._admit(job.exchange, job.generation, job.tell_place) as engine:
                try:
                    return await self._ask(engine, job)
                except (UpstreamUnavailable, Overloaded) as error:
                    turned_away = error
            untie(turned_away)
            await self._look_at(engine, turned_away, job.exchange)
            job.exchange.note_failed_attempt()

    async def _look_at(self, engine: Engine, turned_away: GatewayError, exchange: Exchange) -> None:
        """Find out why a request was turned away; raise that if another try would be no better."""
        if isinstance(turned_away, UpstreamUnavailable):
            engine.note_connect_fault()
            return
        if exchange.engine_answered_at:
            raise turned_away
        # It may have been told to stop, and let nobody in any more; then the request can wait for the next.
        if engine.takes_requests:
            await engine.next_look(LOOK_SECONDS)
        if engine.takes_requests:
            raise turned_away

    async def _ask(self, engine: Engine, job: _Job) -> None:
        job.exchange.engine = engine.label
        job.exchange.engine_called_at = time.perf_counter()
        try:
            with await self._post(engine, job) as answer:
                await self._pass_on(answer, job)
        except (asyncio.CancelledError, ClientDisconnected, UpstreamTimeout):
            # It was us who ended it: the engine should be seen to stop.
            engine.note_abort()
            raise
        except UpstreamFault:
            engine.note_fault()
            raise
        engine.note_answer()

    async def _post(self, engine: Engine, job: _Job) -> Answer:
        generation = job.generation
        limit = self._times.stream.first_token if generation.stream else self._times.answer
        try:
            asked = self._client.post(engine, generation.path, generation.body, _headers(job.exchange, engine))
            return await job.patience.wait(asked, limit)
        except TimeoutError:
            raise UpstreamTimeout(f"The engine did not answer within {limit:.0f} s. Try again.") from None

    async def _pass_on(self, answer: Answer, job: _Job) -> None:
        if answer.status != _OK:
            raise await refusal_of(answer)
        if answer.is_encoded or answer.is_event_stream != job.generation.stream:
            raise UpstreamInvalidResponse("The engine's answer is not of the kind that was asked for. Try again.")
        if job.generation.stream:
            meter = StreamMeter(hide_usage=job.generation.hide_usage)
            stream = Stream(answer, job.reply, job.watch, self._times.stream, meter)
            await stream.relay(job.exchange)
        else:
            await self._pass_whole(answer, job)

    async def _pass_whole(self, answer: Answer, job: _Job) -> None:
        exchange = job.exchange
        limit = self._times.answer - (time.perf_counter() - exchange.engine_called_at)
        try:
            body = await job.patience.wait(answer.read_whole(MAX_ANSWER_BYTES), limit)
        except TimeoutError:
            raise UpstreamTimeout(
                f"The engine's answer was not complete within {self._times.answer:.0f} s. Ask for less, or stream."
            ) from None
        if not (body.startswith(b"{") and body.rstrip().endswith(b"}")):
            raise UpstreamInvalidResponse("The engine's answer is not JSON. Try again.")
        exchange.engine_answered_at = time.perf_counter()
        usage = usage_in(body)
        if usage:
            exchange.prompt_tokens = usage.prompt_tokens
            exchange.completion_tokens = usage.completion_tokens
        exchange.outcome = Outcome.OK
        job.watch.stop()
        await job.reply.send_whole(body)
        exchange.answer_started_at = time.perf_counter()


def _headers(exchange: Exchange, engine: Engine) -> dict[str, str]:
    """Return what the engine is told of a request besides its body: names for its log and for its trace."""
    headers = exchange.engine_headers
    if exchange.trace and (parent := exchange.trace.call_engine(engine.label, engine.model)):
        headers["traceparent"] = parent
    return headers
