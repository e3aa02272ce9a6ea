"""The launcher's commands, from the environment to an exit code."""

import argparse
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from launcher import checkpoint as checkpoints
from launcher import errors, preflight, weights
from launcher import settings as settings_module
from launcher.command import Command, with_caches
from launcher.draining import Notice
from launcher.settings import Settings
from launcher.supervisor import Inbox, Limits, Outcome, healthy, run

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_PROBE_TIMEOUT_SECONDS = 3.0
_DOWNLOAD_STOP_SECONDS = 5

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors.py has the table."""
    commands: dict[str, Callable[[Settings, Mapping[str, str]], int]] = {
        "serve": serve,
        "plan": show_plan,
        "check": check,
        "health": health,
        "settings": reference,
    }
    parser = argparse.ArgumentParser(prog="launcher", description="Start vLLM from ENGINE_* settings.")
    parser.add_argument("command", nargs="?", choices=[*commands, "fetch"], default="serve")
    parser.add_argument("--dry-run", action="store_true", help="fetch: only ask the hub what there is to fetch")
    parser.add_argument("--progress", type=Path, help="fetch: tell the progress to this pipe or file, a line each time")
    parser.add_argument("--hashes", action="store_true", help="check: read the weights whole and compare their hashes")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s launcher: %(message)s")
    # The hubs' clients would log every request, with signed addresses.
    logging.getLogger("launcher").setLevel(logging.INFO)
    environment = settings_module.process_environment()
    try:
        settings = Settings.from_environment(environment)
        if options.command == "fetch":
            return fetch(settings, environment, dry_run=options.dry_run, progress=options.progress)
        if options.command == "check":
            return check(settings, environment, hashes=options.hashes)
        return commands[options.command](settings, environment)
    except errors.LauncherError as error:
        sys.stderr.write(f"launcher: {error}\n")
        return error.exit_code


def serve(settings: Settings, environment: Mapping[str, str]) -> int:
    """Check, fetch if need be, start vLLM and stay with it until it ends."""
    begin = time.monotonic()
    with Inbox() as inbox:
        preflight.require_port(settings)
        prepared = preflight.prepare(settings, environment, lambda: _fetch_in_child(settings, environment, inbox))
        if prepared is None:
            return 0
        for reason in prepared.plan.reasons:
            log.info("%s", reason)
        log.info("checked in %.1f s; starting %s", time.monotonic() - begin, prepared.command)
        limits = Limits(settings.start_timeout_seconds, settings.shutdown_timeout_seconds)
        with Notice() as notice:
            command = notice.known_to(prepared.command)
            outcome = run(command, inbox, limits, _health_address(settings), before_stop=notice.put_up)
    return _conclude(settings, outcome, time.monotonic() - begin)


def show_plan(settings: Settings, environment: Mapping[str, str]) -> int:
    """Print the command line and why it is so; nothing is started or fetched."""
    prepared = preflight.prepare(settings, environment, None)
    if prepared is not None:
        added = {
            name: text for name, text in sorted(prepared.command.environment.items()) if environment.get(name) != text
        }
        lines = [*prepared.plan.reasons, "", *(f"{name}={text}" for name, text in added.items()), str(prepared.command)]
        sys.stdout.write("\n".join(lines) + "\n")
    return 0


def check(settings: Settings, environment: Mapping[str, str], *, hashes: bool = False) -> int:
    """Do what serve does before vLLM starts, but ask the hub what a download would take instead of it.

    The port is not looked at: an engine that runs already may hold it, and `serve` looks for itself. With `hashes`
    every file of the weights is read.
    """
    with Inbox() as inbox:
        survey = partial(_fetch_in_child, settings, environment, inbox, dry_run=True)
        prepared = preflight.prepare(settings, environment, lambda: survey() and False)
    if prepared is None:
        log.info("the settings are sound; the weights are not on this machine yet, and the hub has them")
        return 0
    if hashes:
        count = weights.check_hashes(prepared.checkpoint.folder)
        log.info("%d files have the hashes of the hub", count)
        if not count:
            log.warning("no hash is known of a folder that no hub's client filled")
    log.info("all is sound")
    return 0


def fetch(
    settings: Settings, environment: Mapping[str, str], *, dry_run: bool = False, progress: Path | None = None
) -> int:
    """Download the weights, or bring them up to date, and check them; or only ask what there is to download.

    `progress` is a pipe or file that gets a line for each step, as weights.read_progress reads it.
    """
    caches = with_caches(settings, environment)
    if weights.may_ask_hub(settings, environment):
        options = (*(("--dry-run",) if dry_run else ()), *(("--progress", str(progress)) if progress else ()))
        _enter_environment({**environment, **caches, **weights.hub_environment(settings)}, options)
        with contextlib.ExitStack() as stack:
            teller = stack.enter_context(weights.Teller(progress)) if progress else None
            weights.download(settings, caches, dry_run=dry_run, on_progress=teller.tell if teller else None)
        if dry_run:
            return 0
    folder = weights.locate(settings, caches)
    if folder is None:
        raise errors.WeightsUnreachable(weights.unreachable(settings, "fetching is off here"))
    checkpoints.inspect(folder)
    log.info("%s is whole", settings.model)
    return 0


def _enter_environment(wanted: Mapping[str, str], options: Sequence[str]) -> None:
    """Run this command anew in the wanted environment: the hubs' clients read theirs while they are imported."""
    if settings_module.process_environment() != wanted:
        words = (sys.executable, "-m", "launcher", "fetch", *options)
        os.execve(sys.executable, words, dict(wanted))  # noqa: S606  (no shell is wanted)


def health(settings: Settings, _environment: Mapping[str, str]) -> int:
    """Ask the running server's /health."""
    return 0 if healthy(*_health_address(settings), timeout_seconds=_PROBE_TIMEOUT_SECONDS) else 1


def reference(_settings: Settings, _environment: Mapping[str, str]) -> int:
    """Print every setting with its default, as for .env.example."""
    sys.stdout.write(settings_module.reference())
    return 0


def _fetch_in_child(
    settings: Settings,
    environment: Mapping[str, str],
    inbox: Inbox,
    *,
    dry_run: bool = False,
    on_progress: Callable[[weights.Progress], None] | None = None,
) -> bool:
    """Run `fetch` as a process of its own, so that a stop is obeyed at once; False if it was stopped.

    `on_progress` is called twice a second, from another thread.
    """
    begin = time.monotonic()
    log.info("fetching %s from %s", settings.model, settings.hub_endpoint or settings.hub)
    with weights.Channel(on_progress or (lambda _: None)) as channel:
        options = ("--dry-run",) if dry_run else ("--progress", str(channel.path))
        command = Command((sys.executable, "-m", "launcher", "fetch", *options), environment)
        outcome = run(command, inbox, Limits(0, _DOWNLOAD_STOP_SECONDS))
    if outcome.stopped_by is not None:
        log.info("stopped while fetching")
        return False
    if outcome.status:
        # The child has explained itself on the same stream; its code is the reason.
        raise SystemExit(outcome.status if outcome.status > 0 else 128 - outcome.status)
    log.info("fetched in %.1f s", time.monotonic() - begin)
    return True


def _health_address(settings: Settings) -> tuple[str, int]:
    return _ANY_ADDRESS.get(settings.host, settings.host), settings.port


def _conclude(settings: Settings, outcome: Outcome, seconds: float) -> int:
    """Exit code 0 after a stop on request; else the error that says what ended the engine."""
    if outcome.late:
        raise errors.StartTimeout(
            f"vLLM was not healthy after {settings.start_timeout_seconds} s and was killed; its log is above. Raise"
            " ENGINE_START_TIMEOUT_SECONDS if it was still working"
        )
    if outcome.killed:
        raise errors.EngineKilled(
            f"vLLM did not end within {settings.shutdown_timeout_seconds} s and was killed"
            " (ENGINE_SHUTDOWN_TIMEOUT_SECONDS)"
        )
    if outcome.stopped_by is None:
        raise errors.EngineEnded(f"vLLM ended by itself after {seconds:.0f} s, {_status(outcome.status)}; see its log")
    log.info("stopped on %s after %.1f s", outcome.stopped_by.name, seconds)
    return 0


def _status(status: int) -> str:
    if status >= 0:
        return f"with exit code {status}"
    number = -status
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    hint = ": out of memory?" if number == signal.SIGKILL else ""
    return f"by {name}{hint}"
