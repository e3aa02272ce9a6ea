"""Runs the load, looks now and then, and writes what came of it, however it ends."""

import asyncio
import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from ops import page, plot
from ops.acceptance.asking import Asker
from ops.acceptance.check import percentile
from ops.acceptance.run import model_of
from ops.card import read_cards
from ops.errors import StackError
from ops.settings import Settings
from ops.soak.load import Load
from ops.soak.sample import Record, Sample, restarted
from ops.soak.verdict import Finding, judge
from ops.up import address, running_ways
from ops.way import StackWay, Usage

FOLDER = "soak"
STREAMS = 4
# Half of what the gateway grants a client by default, so that it runs beside people.
PER_MINUTE = 60
SAMPLES = 720
SHORTEST_GAP_SECONDS, LONGEST_GAP_SECONDS = 5.0, 60.0
HEAD = ("what", "limit", "measured", "verdict")


@dataclass(frozen=True)
class Result:
    """All samples, what they show, and whether it was ended early."""

    samples: Sequence[Sample]
    findings: Sequence[Finding]
    seconds: float
    was_interrupted: bool

    @property
    def is_good(self) -> bool:
        """Nothing grew, slowed or broke."""
        return all(finding.is_good for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line."""
        end = ", ended early" if self.was_interrupted else ""
        word = "Nothing grew, slowed or broke" if self.is_good else "Not sound"
        return f"{word} in {self.seconds / 3600:.2f} h ({len(self.samples)} samples{end})."

    def as_json(self) -> str:
        """Return all but the samples, which have a file of their own."""
        whole = {
            "good": self.is_good,
            "seconds": round(self.seconds, 1),
            "interrupted": self.was_interrupted,
            "samples": len(self.samples),
            "findings": [asdict(finding) for finding in self.findings],
        }
        return json.dumps(whole, ensure_ascii=False, indent=1)

    def as_page(self) -> str:
        """Return the report."""
        rows = [(f.name, f.limit, f.measured, "pass" if f.is_good else "fail") for f in self.findings]
        return page.render("Soak", self.summary, HEAD, rows, self._pictures())

    def _pictures(self) -> list[str]:
        xs = [sample.at_seconds for sample in self.samples]
        services = sorted({service for sample in self.samples for service in sample.usage})
        nothing = Usage(0, 0, 0, "")

        def over(read: Callable[[Usage], float]) -> dict[str, list[float | None]]:
            return {name: [read(s.usage.get(name, nothing)) for s in self.samples] for name in services}

        card: dict[str, list[float | None]] = {}
        if any(sample.card_bytes for sample in self.samples):
            card = {"card": [sample.card_bytes / 1e6 for sample in self.samples]}
        return [
            plot.lines("Memory", "MB", xs, over(lambda usage: usage.memory_bytes / 1e6) | card),
            plot.lines("Handles", "open files and sockets", xs, over(lambda usage: usage.handles)),
            plot.lines("Threads", "of all processes of a service", xs, over(lambda usage: usage.threads)),
            plot.lines(
                "Latency",
                "s",
                xs,
                {
                    # Where nothing was answered there is no latency, not one of zero.
                    "first token p50": [s.first_token_p50_seconds or None for s in self.samples],
                    "answer p50": [s.answer_p50_seconds or None for s in self.samples],
                    "answer p99": [s.answer_p99_seconds or None for s in self.samples],
                },
            ),
        ]


def soak(
    settings: Settings, *, hours: float, streams: int, per_minute: float, on_sample: Callable[[Sample], None]
) -> tuple[Result, Path]:
    """Load the running stack for so long, or until Ctrl-C or SIGTERM; return what came of it and its folder."""
    ways = running_ways(settings)
    if not ways:
        raise StackError("Nothing is running. Start with: make up")
    folder = settings.run_dir / FOLDER / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    soaking = Soaking(settings, ways[0], Record(folder / "samples.jsonl"), on_sample)
    result = asyncio.run(soaking.run(hours * 3600, streams, per_minute))
    (folder / "result.json").write_text(result.as_json(), encoding="utf-8")
    (folder / "report.html").write_text(result.as_page(), encoding="utf-8")
    return result, folder


class Soaking:
    """One run."""

    def __init__(self, settings: Settings, way: StackWay, record: Record, on_sample: Callable[[Sample], None]) -> None:
        self._settings, self._way, self._record, self._on_sample = settings, way, record, on_sample
        self._samples: list[Sample] = []
        self._stop = asyncio.Event()

    async def run(self, seconds: float, streams: int, per_minute: float) -> Result:
        """Load and look until the time is over or a signal comes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        began = time.monotonic()
        try:
            async with Asker(address(self._settings), self._settings.api_key, model_of(self._settings)) as asker:
                load = Load(asker, streams, per_minute)
                task = asyncio.create_task(load.run())
                try:
                    await self._look_on(load, began, seconds)
                finally:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        return Result(self._samples, judge(self._samples), time.monotonic() - began, self._stop.is_set())

    async def _look_on(self, load: Load, began: float, seconds: float) -> None:
        gap = min(max(seconds / SAMPLES, SHORTEST_GAP_SECONDS), LONGEST_GAP_SECONDS)
        before = await asyncio.to_thread(self._way.usage)
        while not self._stop.is_set() and (left := seconds - (time.monotonic() - began)) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(gap, left))
            usage = await asyncio.to_thread(self._usage)
            sample = await self._sample(load, time.monotonic() - began, before, usage)
            before = usage or before
            self._samples.append(sample)
            self._record.add(sample)
            self._on_sample(sample)

    def _usage(self) -> dict[str, Usage]:
        try:
            return self._way.usage()
        except StackError:
            # supervisord or Docker does not answer: every service counts as gone, which is what the verdict must say.
            return {}

    async def _sample(self, load: Load, at: float, before: dict[str, Usage], usage: dict[str, Usage]) -> Sample:
        replies = load.take()
        good = [reply for reply in replies if not reply.fault]
        cards, _ = await asyncio.to_thread(read_cards)
        wholes = [reply.seconds for reply in good]
        return Sample(
            at_seconds=round(at, 1),
            asked=len(replies),
            faults=Counter(reply.fault for reply in replies if reply.fault),
            first_token_p50_seconds=median([reply.first_token_seconds for reply in good] or [0.0]),
            answer_p50_seconds=median(wholes or [0.0]),
            answer_p99_seconds=percentile(wholes, 0.99),
            tokens=sum(reply.tokens for reply in good),
            usage=usage,
            card_bytes=sum(card.used_bytes for card in cards),
            restarted=restarted(before, usage),
        )
