"""The ledger that gateways share in Valkey: exact over all of them, and a share of the limits each when it is away."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from gateway.limits.ledger import Claim, Grant, Standing, Verdict
from gateway.limits.memory import MemoryLedger
from gateway.limits.scripts import Argument, Scripts, ValkeyAwayError
from gateway.limits.window import SLOTS, TOLERANCE_SECONDS
from gateway.rates import Rate

# The most that a request waits for the answer; within one host it takes a hundredth of this.
ANSWER_SECONDS = 0.05
# How often a gateway gives a sign of life, and how long the others believe in it without.
SIGN_SECONDS = 1.0
LIFETIME_SECONDS = 10.0
LAST_SETTLEMENTS_SECONDS = 1.0
# At the start it is tried for so long: a connection takes longer than an answer, and the first work is much at once.
FIRST_SIGN_SECONDS, FIRST_PAUSE_SECONDS = 1.0, 0.05
_PREFIX = "gateway:limits"
_GATEWAYS = f"{_PREFIX}:gateways"
_log = logging.getLogger("gateway.limits")


class SharedLedger:
    """Grants and settles in Valkey, and keeps this gateway's own part of it in memory for when that is away.

    `gateways` is how many there are at least; `on_change` hears whether Valkey is away, as `degraded` tells.
    """

    def __init__(
        self,
        url: str,
        local: MemoryLedger,
        gateways: int = 1,
        on_change: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._scripts = Scripts(url, {name: _script(name) for name in ("reserve", "settle", "sign")}, ANSWER_SECONDS)
        self._local = local
        # What this gateway's running requests are counted under.
        self._id = secrets.token_hex(8)
        self._gateways = self._least = gateways
        self._on_change = on_change
        self._is_up = False
        self._has_told = False
        self._signing: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[None]] = set()

    @property
    def degraded(self) -> bool:
        """Whether Valkey is away, and this gateway grants its share of the limits."""
        return not self._is_up

    async def start(self) -> None:
        """Look for Valkey, and then go on giving signs of life."""
        # Several processes may have been one when this was made.
        self._id = secrets.token_hex(8)
        ends_at = time.monotonic() + FIRST_SIGN_SECONDS
        while error := await self._give_sign():
            if time.monotonic() > ends_at:
                self._lose(error)
                break
            await asyncio.sleep(FIRST_PAUSE_SECONDS)
        self._signing = asyncio.create_task(self._give_signs())

    async def stop(self) -> None:
        """Finish what is being settled, and close the connection."""
        if self._signing:
            self._signing.cancel()
            await asyncio.wait([self._signing])
        if self._settling:
            _, unsettled = await asyncio.wait(self._settling, timeout=LAST_SETTLEMENTS_SECONDS)
            for task in unsettled:
                task.cancel()
        await self._scripts.close()

    async def reserve(self, claim: Claim) -> Grant:
        """Grant all of a claim or nothing of it; a Valkey that goes away costs ANSWER_SECONDS at most."""
        shared = await self._reserve_shared(claim) if self._is_up else None
        if shared is None:
            return Grant(claim, self._local.decide(claim, claim.allowance.divided_by(self._gateways)))
        local = self._local.decide(claim, claim.allowance, grant_anyway=True) if shared.granted else shared
        return Grant(claim, local, shared)

    def settle(self, grant: Grant, used_tokens: int) -> None:
        """Give the place back and put the tokens really used in the place of those reserved, soon after."""
        self._local.settle(grant, used_tokens)
        if grant.shared and self._is_up:
            task = asyncio.create_task(self._settle_shared(grant.claim, grant.shared, used_tokens))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _reserve_shared(self, claim: Claim) -> Verdict | None:
        place, allowance = self._id, claim.allowance
        limits = [
            *_as_numbers(allowance.requests),
            *_as_numbers(allowance.tokens),
            claim.tokens,
            allowance.streams or 0,
        ]
        arguments: list[Argument] = [place, LIFETIME_SECONDS, *limits, SLOTS, TOLERANCE_SECONDS]
        try:
            answer = await self._scripts.run("reserve", [*_keys(claim), _GATEWAYS], arguments)
        except ValkeyAwayError as error:
            self._lose(error)
            return None
        return _verdict(answer, claim, place)

    async def _settle_shared(self, claim: Claim, verdict: Verdict, used_tokens: int) -> None:
        tokens = claim.allowance.tokens
        by, seconds = (used_tokens - verdict.reserved_tokens, tokens.seconds) if tokens else (0, 0)
        arguments: list[Argument] = [
            verdict.account,
            f"{verdict.granted_at:.6f}",
            by,
            seconds,
            SLOTS,
            TOLERANCE_SECONDS,
        ]
        try:
            await self._scripts.run("settle", _keys(claim), arguments)
        except ValkeyAwayError as error:
            self._lose(error)

    async def _give_signs(self) -> None:
        while True:
            await asyncio.sleep(SIGN_SECONDS)
            if error := await self._give_sign():
                self._lose(error)

    async def _give_sign(self) -> ValkeyAwayError | None:
        try:
            if not self._is_up:
                await self._scripts.load()
            alive = await self._scripts.run("sign", [_GATEWAYS], [self._id, LIFETIME_SECONDS])
        except ValkeyAwayError as error:
            return error
        self._gateways = max(self._least, int(alive))
        self._is_up = True
        self._on_change(False)
        if self._has_told:
            self._has_told = False
            _log.info("state_shared_again", extra={"fields": {"gateways": self._gateways}})
        return None

    def _lose(self, reason: Exception) -> None:
        """Go on without Valkey until it answers a sign of life; the log hears of it once."""
        if self._is_up:
            # What was asked last may have been done all the same; such places are given up with the old name.
            self._id = secrets.token_hex(8)
        self._is_up = False
        self._on_change(True)
        if not self._has_told:
            self._has_told = True
            fields = {"reason": str(reason), "gateways": self._gateways}
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
