"""Memory, and coming back after a crash."""

import asyncio
import re
import time
from collections.abc import Iterable

from ops.acceptance.asking import QUESTIONS, Asker
from ops.acceptance.check import Bounds, Check, Verdict, skipped
from ops.card import read_cards
from ops.settings import Settings
from ops.way import StackWay

GIB = 1024**3
TUTORIALS_GIB = 10.5
_SIZES = {"k": 1024, "m": 1024**2, "g": GIB, "t": 1024 * GIB}


def memory(settings: Settings, way: StackWay) -> Iterable[Check]:
    """The engine's memory: the card's, held to ENGINE_VRAM_GB; without a card the host's, held to the container's."""
    if way.uses_card():
        cards, complaint = read_cards()
        used = max((card.used_bytes for card in cards), default=0) / GIB
        name, asked = "memory of the card", settings.environment.get("ENGINE_VRAM_GB")
        if complaint or not cards:
            return [skipped(name, "a ceiling", complaint or "nvidia-smi is not on this host", required=True)]
        ceiling = float(asked) if asked else TUTORIALS_GIB
        if used > ceiling and not asked:
            reason = (
                f"no ceiling is set: the engine takes its fair share; ENGINE_VRAM_GB={TUTORIALS_GIB} holds it to that"
            )
            return [skipped(name, f"≤ {TUTORIALS_GIB} GiB", reason, f"{used:.1f} GiB")]
        return [_held(name, used, ceiling)]
    usage = way.usage().get("vllm")
    if usage is None:
        return [skipped("memory of the engine", "a ceiling", "the engine does not run", required=True)]
    return [_held("memory of the engine", usage.memory_bytes / GIB, _ceiling(settings))]


async def recovery(asker: Asker, way: StackWay, bounds: Bounds) -> Iterable[Check]:
    """Kill the engine; a question asked at once must be answered, however late, and no other than by waiting."""
    await asker.room_for(2)
    began = time.monotonic()
    await asyncio.to_thread(way.kill_engine)
    refusals = 0
    while (left := bounds.recovery_seconds - (time.monotonic() - began)) > 0:
        reply = await asker.ask(QUESTIONS[0])
        if not reply.fault:
            measured = f"{time.monotonic() - began:.0f} s, {refusals} refused meanwhile"
            return [Check("recovery after the engine was killed", _within(bounds), measured, Verdict.PASS)]
        refusals += 1
        await asyncio.sleep(min(5.0, left))
    return [Check("recovery after the engine was killed", _within(bounds), "not back", Verdict.FAIL, reply.fault)]


def _within(bounds: Bounds) -> str:
    return f"≤ {bounds.recovery_seconds:g} s"


def _held(name: str, used: float, ceiling: float) -> Check:
    verdict = Verdict.PASS if used <= ceiling else Verdict.FAIL
    return Check(name, f"≤ {ceiling:g} GiB", f"{used:.2f} GiB", verdict, required=True)


def _ceiling(settings: Settings) -> float:
    text = settings.environment.get("STACK_ENGINE_MEMORY") or "16g"
    match = re.fullmatch(r"(\d+)([kmgt])?b?", text.lower())
    return int(match[1]) * _SIZES.get(match[2] or "", 1) / GIB if match else 16.0
