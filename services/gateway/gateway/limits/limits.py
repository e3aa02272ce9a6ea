"""The limits of every client: what a request reserves when it comes, and what it has cost when it is over."""

import math

from gateway.errors import RETRY_AFTER_SECONDS, Outcome, RateLimited
from gateway.limits.ledger import Claim, Grant, Ledger, Standing, Verdict
from gateway.limits.window import TOLERANCE_SECONDS
from gateway.metrics import Metrics
from gateway.schemas import Client, Exchange, Generation

# Of what a request may make, so much is reserved at most: the longest answer that the chat page asks for. Longer ones
# are rare, and charged in the end; reserving all that clients ask for out of habit would lock them out.
MOST_RESERVED_TOKENS = 2048
# English text in JSON; Chinese has fewer bytes a token in UTF-8 and more where it is escaped.
BYTES_PER_TOKEN = 4
_HOUR, _MINUTE = 3600, 60


class Limits:
    """Lets requests pass as far as their client's allowance goes; every one that has passed is settled once."""

    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics

    async def reserve(self, exchange: Exchange, client: Client, generation: Generation) -> Grant | None:
        """Reserve what the request may cost; None if nothing is limited. Raises RateLimited.

        Either way the exchange learns the headers that tell the client how it stands.
        """
        if client.allowance.is_unlimited:
            return None
        claim = Claim(client.name, client.allowance, _prompt_tokens(generation) + _most_answer_tokens(generation))
        grant = await self._ledger.reserve(claim)
        verdict = grant.verdict
        exchange.headers = _headers(verdict)
        if not verdict.granted:
            raise self._refusal(verdict)
        return grant

    def settle(self, grant: Grant | None, exchange: Exchange, generation: Generation) -> None:
        """Charge what a request that has ended has really cost; what it had reserved beyond that is free again."""
        if grant is not None:
            self._ledger.settle(grant, used_tokens(exchange, generation, grant.verdict.reserved_tokens))

    def _refusal(self, verdict: Verdict) -> RateLimited:
        """Return the refusal for the limit that takes longest to come free."""
        standings = {"requests": verdict.requests, "tokens": verdict.tokens}
        waits = {limit: standing for limit, standing in standings.items() if standing and standing.wait_seconds > 0}
        if not waits:
            self._metrics.count_rate_limited("streams")
            return RateLimited(
                "As many of your requests are running as may run at a time. Try again when one of them is over.",
                retry_after=RETRY_AFTER_SECONDS,
            )
        limit, standing = max(waits.items(), key=lambda item: item[1].wait_seconds)
        self._metrics.count_rate_limited(limit)
        seconds = whole_seconds(standing.wait_seconds)
        return RateLimited(
            f"You have had your {standing.limit} {limit} for now. Try again in {seconds} seconds.", retry_after=seconds
        )


def whole_seconds(seconds: float) -> int:
    """Return the least number of whole seconds, at least 1, after which so much time has passed."""
    return max(1, math.ceil(seconds - TOLERANCE_SECONDS))


def used_tokens(exchange: Exchange, generation: Generation, reserved: int) -> int:
    """Return what a request has cost: the engine's figures, else what is known to have been made.

    A request that failed before anything was made costs nothing. Of a client that left early it is known that its
    prompt was read, if an engine was asked; how far a whole answer had come is not: that costs all that was reserved.
    """
    if exchange.prompt_tokens or exchange.completion_tokens:
        return (exchange.prompt_tokens or _prompt_tokens(generation)) + exchange.completion_tokens
    if exchange.engine_called_at and exchange.outcome in _WITHOUT_FAULT:
        return _prompt_tokens(generation) if exchange.streamed else reserved
    return 0


def _prompt_tokens(generation: Generation) -> int:
    return len(generation.body) // BYTES_PER_TOKEN + 1


def _most_answer_tokens(generation: Generation) -> int:
    most = MOST_RESERVED_TOKENS if generation.max_tokens is None else min(generation.max_tokens, MOST_RESERVED_TOKENS)
    return most * generation.choices


def _headers(verdict: Verdict) -> list[tuple[bytes, bytes]]:
    """Return the headers that OpenAI's API has, for the limits that there are."""
    headers: list[tuple[bytes, bytes]] = []
    for names, standing in ((_HEADERS[0], verdict.requests), (_HEADERS[1], verdict.tokens)):
        if standing:
            values = (b"%d" % standing.limit, b"%d" % standing.remaining, _duration(standing))
            headers += zip(names, values, strict=True)
    return headers


def _duration(standing: Standing) -> bytes:
    """Write the time until all is free as OpenAI's API does: `1h0m0s`, `1m0s`, `12s`."""
    seconds = math.ceil(standing.reset_seconds - TOLERANCE_SECONDS)
    if seconds >= _HOUR:
        return b"%dh%dm%ds" % (seconds // _HOUR, seconds % _HOUR // _MINUTE, seconds % _MINUTE)
    return b"%dm%ds" % (seconds // _MINUTE, seconds % _MINUTE) if seconds >= _MINUTE else b"%ds" % seconds


_HEADERS = (
    (b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests"),
    (b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens"),
)
_WITHOUT_FAULT = frozenset({Outcome.OK, Outcome.DISCONNECTED})
