"""Runs all checks in their order, and shows and writes what came of them."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from ops import page, plot
from ops.acceptance import resources, soundness, speed
from ops.acceptance.asking import Asker
from ops.acceptance.check import ON_CARD, ON_CPU, Bounds, Check, Verdict
from ops.acceptance.speed import Measured
from ops.errors import StackError
from ops.settings import Settings
from ops.up import address, running_ways
from ops.way import StackWay

FOLDER = "acceptance"
DEFAULT_STREAMS = 16  # the gateway's GATEWAY_MAX_STREAMS_PER_CLIENT
HEAD = ("check", "limit", "measured", "verdict", "reason")


class Result:
    """All checks, where they ran, and what the report draws."""

    def __init__(self, checks: Sequence[Check], bounds: Bounds, measured: Measured, model: str) -> None:
        self.checks, self.bounds, self.measured, self.model = checks, bounds, measured, model

    @property
    def is_accepted(self) -> bool:
        """No check failed, and none of the required ones was skipped."""
        return not any(
            check.verdict is Verdict.FAIL or (check.required and check.verdict is Verdict.SKIPPED)
            for check in self.checks
        )

    @property
    def summary(self) -> str:
        """One line."""
        counts = {verdict: sum(check.verdict is verdict for check in self.checks) for verdict in Verdict}
        numbers = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        return f"{'Accepted' if self.is_accepted else 'Not accepted'} {self.bounds.where} ({self.model}): {numbers}."

    def as_json(self) -> str:
        """Return all of it for scripts."""
        whole = {
            "accepted": self.is_accepted,
            "model": self.model,
            "bounds": asdict(self.bounds),
            "checks": [asdict(check) for check in self.checks],
            "tokens_per_second": self.measured.tokens_per_second,
            "series": [asdict(reply) | {"text": len(reply.text)} for reply in self.measured.series],
        }
        return json.dumps(whole, ensure_ascii=False, indent=1)

    def as_page(self) -> str:
        """Return the report."""
        rows = [(check.name, check.limit, check.measured, str(check.verdict), check.reason) for check in self.checks]
        good = [reply for reply in self.measured.series if not reply.fault]
        firsts, wholes = [r.first_token_seconds for r in good], [r.seconds for r in good]
        rates = {f"{streams} streams": rate for streams, rate in self.measured.tokens_per_second.items()}
        pictures = [
            plot.dots("First token of each of the 20 questions", "s", firsts, self.bounds.first_token_seconds),
            plot.dots("Whole answer of each of the 20 questions", "s", wholes, self.bounds.mean_seconds),
            plot.bars("Throughput", "tokens/s", rates),
        ]
        return page.render("Acceptance", self.summary, HEAD, rows, pictures)


def accept(settings: Settings, *, recovery: bool, on_check: Callable[[Check], None]) -> Result:
    """Run everything against the running stack; raises `StackError` if there is none that answers."""
    ways = running_ways(settings)
    if not ways:
        raise StackError("Nothing is running. Start with: make up")
    return asyncio.run(_run(settings, ways[0], recovery=recovery, on_check=on_check))


def write(result: Result, run_dir: Path) -> tuple[Path, Path]:
    """Write JSON and page below the run directory and return where."""
    folder = run_dir / FOLDER / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "result.json", folder / "report.html"
    files[0].write_text(result.as_json(), encoding="utf-8")
    files[1].write_text(result.as_page(), encoding="utf-8")
    return files


def print_table(result: Result, console: Console) -> None:
    """Print the table and the one line."""
    table = Table(*HEAD, show_lines=False, expand=False)
    colours = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.SKIPPED: "yellow"}
    for check in result.checks:
        verdict = f"[{colours[check.verdict]}]{check.verdict}[/]"
        table.add_row(check.name, check.limit, check.measured, verdict, check.reason)
    console.print(table)
    console.print(result.summary, highlight=False)


async def _run(settings: Settings, way: StackWay, *, recovery: bool, on_check: Callable[[Check], None]) -> Result:
    bounds = ON_CARD if way.uses_card() else ON_CPU
    measured, checks = Measured(), list[Check]()
    model = model_of(settings)
    async with Asker(address(settings), settings.api_key, model) as asker:
        streams = None if settings.api_key else _streams(settings)
        steps: list[Callable[[], Awaitable[Iterable[Check]]]] = [
            lambda: speed.first_reply(asker, bounds),
            lambda: speed.series(asker, bounds, measured),
            lambda: speed.crowd(asker),
            lambda: asyncio.to_thread(resources.memory, settings, way),
            lambda: soundness.chinese(asker),
            lambda: soundness.errors(asker),
            lambda: soundness.abort(asker, way),
            lambda: speed.throughput(asker, measured),
            lambda: soundness.limits(asker, streams),
        ]
        if recovery:
            steps.append(lambda: resources.recovery(asker, way, bounds))
        for step in steps:
            for check in await step():
                checks.append(check)
                on_check(check)
    return Result(checks, bounds, measured, model)


def _streams(settings: Settings) -> int | None:
    text = settings.environment.get("GATEWAY_MAX_STREAMS_PER_CLIENT") or str(DEFAULT_STREAMS)
    return int(text) if text.isdigit() else None


def model_of(settings: Settings) -> str:
    """Return the model that the stack serves; raises `StackError` if it does not say, or wants a key."""
    headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    url = f"{address(settings)}/v1/models"
    try:
        answer = httpx.get(url, headers=headers, trust_env=False, timeout=10)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise StackError("API keys are on: put one into STACK_API_KEY (make key NAME=accept shows it).")
        return str(answer.raise_for_status().json()["data"][0]["id"])
    except (httpx.HTTPError, LookupError, ValueError) as error:
        raise StackError(f"{url} does not answer ({error}); see: make doctor") from error
