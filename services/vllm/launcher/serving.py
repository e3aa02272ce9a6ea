"""`serve`: from the settings to running engines, and from their end to an exit code and what is left to read."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launcher import preflight
from launcher.command import Command
from launcher.draining import Notice
from launcher.errors import LauncherError
from launcher.installation import Installation
from launcher.planning.plan import Plan
from launcher.preflight import Prepared
from launcher.settings import Settings
from launcher.supervision import backoff, ending, last_words
from launcher.supervision.backoff import End, History
from launcher.supervision.board import Board, Progress
from launcher.supervision.census import describe_memory, oom_kills
from launcher.supervision.driver import card_states
from launcher.supervision.engine import Unit
from launcher.supervision.fleet import Fleet, Limits, Watches
from launcher.supervision.inbox import STOP_SIGNALS, Inbox
from launcher.supervision.outcome import Kind, Outcome
from launcher.supervision.stages import Stage
from launcher.supervision.status import StatusServer

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_GPU_STALL_SECONDS = 60
# One step over a long prompt may take long on a few cores.
_CPU_STALL_SECONDS = 300
# vLLM's Rust front end has no middleware that refuses newcomers: the gateway has to see the notice first.
_RUST_NOTICE_SECONDS = 2.5
_NOTICE_SECONDS = 1.0

# Fetches the weights and says whether to go on.
Fetch = Callable[[Inbox, Progress], bool]

log = logging.getLogger(__name__)


def serve(settings: Settings, environment: Mapping[str, str], fetch: Fetch) -> int:
    """Check, fetch if need be, start the engines and stay with them until they end; errors are left to read."""
    folder = last_words.place(settings.cache_dir, environment)
    history = History(folder, settings.model_dump_json())
    board = Board(settings.name)
    kills = oom_kills()
    try:
        with Inbox() as inbox, StatusServer(board, settings.host, settings.status_port):
            if not await_turn(history.ends(), board.own, inbox):
                return 0
            prepared = _prepare(settings, environment, board, inbox, fetch)
            outcome = None if prepared is None else _run(settings, prepared, board, inbox)
    except LauncherError as error:
        history.add(End(time.time(), error.exit_code, str(error), 0.0))
        raise
    except SystemExit as error:
        # The fetching child has explained itself.
        history.add(End(time.time(), int(error.code or 0), "the weights could not be fetched", 0.0))
        raise
    if prepared is None or outcome is None:
        return 0
    failure = ending.explain(outcome, settings, oom_kills() - kills)
    if failure is not None:
        _leave_words(folder, failure, outcome, prepared, environment)
    if outcome.cause.kind is Kind.STOPPED:
        history.clear()
    elif failure is not None:
        history.add(End(time.time(), failure.exit_code, str(failure), outcome.scene.served_seconds))
    if failure is not None:
        raise failure
    return 0


def health_address(settings: Settings) -> tuple[str, int]:
    """Where this machine reaches the first engine."""
    return local(settings.host), settings.port


def local(host: str) -> str:
    """An address that reaches a listener on `host` from this machine."""
    return _ANY_ADDRESS.get(host, host)


def await_turn(ends: list[End], progress: Progress, inbox: Inbox) -> bool:
    """Wait if the starts before this one failed in a row; False if a stop signal came meanwhile."""
    if not ends:
        return True
    log.warning("%s", backoff.summarize(ends))
    seconds = backoff.wait_seconds(ends, time.time())
    deadline = time.monotonic() + seconds
    if seconds:
        log.warning("waiting %.0f s before the next try", seconds)
    while (left := deadline - time.monotonic()) > 0:
        # Without the reason: it may quote the engine's log, and /status is for anybody.
        progress.enter(Stage.WAITING, f"{left:.0f} s before the next try, after {len(ends)} ends in a row")
        received = inbox.wait(min(left, 1.0))
        stop = next((number for number in received if number in STOP_SIGNALS), None)
        if stop is not None:
            log.info("stopped on %s while waiting", stop.name)
            return False
    progress.enter(Stage.CHECKING)
    return True


def _prepare(
    settings: Settings, environment: Mapping[str, str], board: Board, inbox: Inbox, fetch: Fetch
) -> Prepared | None:
    begin = time.monotonic()

    def obtain() -> bool:
        board.own.enter(Stage.DOWNLOADING)
        try:
            return fetch(inbox, board.own)
        finally:
            board.own.enter(Stage.CHECKING)

    preflight.require_port(settings)
    prepared = preflight.prepare(settings, environment, obtain)
    if prepared is not None:
        for reason in prepared.plan.reasons:
            log.info("%s", reason)
        for index in range(1, len(prepared.commands)):
            preflight.require_port(settings, index)
        log.info("checked in %.1f s", time.monotonic() - begin)
        for command in prepared.commands:
            log.info("starting %s", command)
    return prepared


def _run(settings: Settings, prepared: Prepared, board: Board, inbox: Inbox) -> Outcome:
    with Notice() as notice:
        units = []
        host, sequences = local(settings.host), prepared.plan.sequences
        for index, command in enumerate(prepared.commands):
            # On SIGABRT, and where it crashes, a process of vLLM writes the stacks of its threads.
            environment = {"PYTHONFAULTHANDLER": "1", **command.environment}
            known = notice.known_to(replace(command, environment=environment))
            units.append(Unit(f"engine {index + 1}", known, host, settings.engine_port(index), sequences))
        limits = Limits(
            settings.start_timeout_seconds, settings.shutdown_timeout_seconds, _notice_seconds(prepared.plan)
        )
        uses_card = prepared.plan.device == "cuda"
        seconds = settings.stall_seconds or (_GPU_STALL_SECONDS if uses_card else _CPU_STALL_SECONDS)
        watches = Watches(settings.name, seconds, cards=_cards(prepared.commands) if uses_card else None)
        return Fleet(units, inbox, board, limits, watches, before_stop=notice.put_up).run()


def _cards(commands: Sequence[Command]) -> set[str]:
    """Names of the cards that the engines see; without a selection vLLM takes the first."""
    seen = (command.environment.get("CUDA_VISIBLE_DEVICES", "0") for command in commands)
    return {name.strip() for names in seen for name in names.split(",")}


def _notice_seconds(plan: Plan) -> float:
    return _RUST_NOTICE_SECONDS if plan.front_end == "rust" else _NOTICE_SECONDS


def _leave_words(
    folder: Path, failure: LauncherError, outcome: Outcome, prepared: Prepared, environment: Mapping[str, str]
) -> None:
    installation = Installation.find()
    words = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "reason": str(failure),
        "exit_code": failure.exit_code,
        "stage": ", ".join(outcome.scene.stages),
        "uptime_seconds": round(outcome.scene.seconds, 1),
        "served_seconds": round(outcome.scene.served_seconds, 1),
        "vllm": installation.version if installation else None,
        "commands": [str(command) for command in prepared.commands],
        "cards": card_states() if prepared.plan.device == "cuda" else {},
        "card_notes": list(outcome.card_notes),
        "memory": describe_memory(),
        "processes": list(outcome.scene.processes),
        "log": {name: list(lines) for name, lines in outcome.lines.items()},
    }
    argv = [word for command in prepared.commands for word in command.argv]
    path = last_words.write(folder, words, last_words.find_secrets(environment, argv))
    if path is not None:
        log.info("the last words are in %s (`python -m launcher last-words` prints them)", path)
