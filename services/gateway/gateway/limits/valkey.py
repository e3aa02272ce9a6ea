"""The ledger that gateways share in Valkey: exact over all of them, and a share of the limits each when it is away."""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.limits.ledger import Claim, Grant, Standing, Verdict
from gateway.limits.memory import MemoryLedger
from gateway.limits.window import SLOTS, TOLERANCE_SECONDS
from gateway.rates import Rate

# The most that a request waits for the answer; within one host it takes a thousandth of this.
ANSWER_SECONDS = 0.05
# How often a gateway gives a sign of life, and how long the others believe in it without.
SIGN_SECONDS = 1.0
LIFETIME_SECONDS = 10.0
MAX_CONNECTIONS = 64
_PREFIX = "gateway:limits"
_GATEWAYS = f"{_PREFIX}:gateways"
# Gives a sign of life in the server's time, forgets the dead, and returns how many are alive.
_SIGN = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now - tonumber(ARGV[2]))
return redis.call('ZCARD', KEYS[1])
"""
_log = logging.getLogger("gateway.limits")


class SharedLedger:
    """Grants and settles in Valkey, and keeps this gateway's own part of it in memory for when that is away."""

    def __init__(self, url: str, local: MemoryLedger) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._client = Redis(connection_pool=pool)
        self._reserve = self._client.register_script(_script("reserve"))
        self._settle = self._client.register_script(_script("settle"))
        self._sign = self._client.register_script(_SIGN)
        self._local = local
        self._id = secrets.token_hex(8)
        self._gateways = 1
        self._is_up = False
        self._was_up = True
        self._signing: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[None]] = set()

    @property
    def degraded(self) -> bool:
        """Whether Valkey is away, and this gateway grants its share of the limits."""
        return not self._is_up

    async def start(self) -> None:
        """Look for Valkey once, and then go on giving signs of life."""
        await self._give_sign()
        self._signing = asyncio.create_task(self._give_signs())

    async def stop(self) -> None:
        """Finish what is being settled, take leave of the other gateways, and close the connections."""
        if self._signing:
            self._signing.cancel()
        if self._settling:
            await asyncio.wait(self._settling, timeout=1)
        if self._is_up:
            await self._bounded(self._client.zrem(_GATEWAYS, self._id))
        await self._client.aclose()

    async def reserve(self, claim: Claim) -> Grant:
        """Grant all of a claim or nothing of it; raises nothing when Valkey is away."""
        if self._is_up:
            allowance = claim.allowance
            requests, tokens = _as_numbers(allowance.requests), _as_numbers(allowance.tokens)
            arguments: list[float | str] = [
                self._id,
                LIFETIME_SECONDS,
                *requests,
                *tokens,
                claim.tokens,
                allowance.streams or 0,
            ]
            call = self._reserve([*_keys(claim), _GATEWAYS], [*arguments, SLOTS, TOLERANCE_SECONDS])
            place = self._id
            answer = await self._bounded(call)
            if answer is not None:
                shared = _verdict(answer, claim, place)
                local = self._local.decide(claim, claim.allowance, grant_anyway=True) if shared.granted else shared
                return Grant(claim, local, shared)
        return Grant(claim, self._local.decide(claim, claim.allowance.divided_by(self._gateways)))

    def settle(self, grant: Grant, used_tokens: int) -> None:
        """Give the place back and put the tokens really used in the place of those reserved, in the background."""
        self._local.settle(grant, used_tokens)
        if grant.shared and self._is_up:
            task = asyncio.create_task(self._settle_shared(grant.claim, grant.shared, used_tokens))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _settle_shared(self, claim: Claim, verdict: Verdict, used_tokens: int) -> None:
        tokens = claim.allowance.tokens
        difference = used_tokens - verdict.reserved_tokens if tokens else 0
        arguments: list[float | str] = [
            verdict.account,
            f"{verdict.granted_at:.6f}",
            difference,
            tokens.seconds if tokens else 0,
        ]
        await self._bounded(self._settle(_keys(claim), [*arguments, SLOTS, TOLERANCE_SECONDS]))

    async def _give_signs(self) -> None:
        while True:
            await asyncio.sleep(SIGN_SECONDS)
            await self._give_sign()

    async def _give_sign(self) -> None:
        alive = await self._bounded(self._sign([_GATEWAYS], [self._id, LIFETIME_SECONDS]))
        if alive is not None:
            self._gateways = max(1, int(alive))
            self._is_up = True
            self._tell()

    async def _bounded(self, call: Any) -> Any:
        """Return what Valkey answers in time, else None: then it is away until it answers a sign of life."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await call
        except (RedisError, OSError, TimeoutError) as error:
            if self._is_up:
                # What was asked last may have been done all the same: such places are given up with the name.
                self._id = secrets.token_hex(8)
            self._is_up = False
            self._tell(type(error).__name__)
            return None

    def _tell(self, reason: str = "") -> None:
        """Say once in the log that Valkey went away or came back."""
        if self._is_up == self._was_up:
            return
        self._was_up = self._is_up
        fields = {"gateways": self._gateways, "reason": reason}
        if self._is_up:
            _log.info("state_shared_again", extra={"fields": fields})
        else:
            _log.error("state_degraded", extra={"fields": fields})


def _script(name: str) -> str:
    return files("gateway.limits").joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _keys(claim: Claim) -> list[str]:
    return [f"{_PREFIX}:granted:{claim.client}", f"{_PREFIX}:streams:{claim.client}"]


def _as_numbers(rate: Rate | None) -> tuple[int, float]:
    return (rate.amount, rate.seconds) if rate else (0, 0)


def _verdict(answer: Sequence[Any], claim: Claim, place: str) -> Verdict:
    granted, now, reserved, streams_are_out = answer[:4]
    return Verdict(
        bool(granted),
        float(now),
        place,
        int(reserved),
        _standing(claim.allowance.requests, answer[4:7]),
        _standing(claim.allowance.tokens, answer[7:10]),
        bool(streams_are_out),
    )


def _standing(rate: Rate | None, answer: Sequence[Any]) -> Standing | None:
    return Standing(rate.amount, int(answer[0]), float(answer[1]), float(answer[2])) if rate else None
