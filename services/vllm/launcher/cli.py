"""The launcher's commands, from the environment to an exit code."""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from launcher import checkpoint as checkpoints
from launcher import errors, preflight, serving, survey, weights
from launcher import settings as settings_module
from launcher.command import Command, with_caches
from launcher.settings import Settings
from launcher.supervision import errand, last_words
from launcher.supervision.board import Progress
from launcher.supervision.health import healthy
from launcher.supervision.inbox import Inbox
from launcher.supervision.stages import Stage
from launcher.supervision.status import fetch_status

_PROBE_TIMEOUT_SECONDS = 3.0
_DOWNLOAD_STOP_SECONDS = 5

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors.py has the table."""
    commands: dict[str, Callable[[Settings, Mapping[str, str]], int]] = {
        "serve": serve,
        "hardware": survey.show_hardware,
        "check": check,
        "health": health,
        "status": status,
        "last-words": print_last_words,
        "settings": reference,
    }
    parser = argparse.ArgumentParser(prog="launcher", description="Start vLLM from ENGINE_* settings.")
    parser.add_argument("command", nargs="?", choices=[*commands, "plan", "fetch"], default="serve")
    parser.add_argument("--dry-run", action="store_true", help="fetch: only ask the hub what there is to fetch")
    parser.add_argument("--hardware", type=Path, metavar="FILE", help="plan: for the machine that `hardware` printed")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s launcher: %(message)s")
    environment = settings_module.process_environment()
    try:
        settings = Settings.from_environment(environment)
        if options.command == "fetch":
            return fetch(settings, environment, dry_run=options.dry_run)
        if options.command == "plan":
            return survey.show_plan(settings, environment, options.hardware)
        return commands[options.command](settings, environment)
    except errors.LauncherError as error:
        sys.stderr.write(f"launcher: {error}\n")
        return error.exit_code


def serve(settings: Settings, environment: Mapping[str, str]) -> int:
    """Check, fetch if need be, start vLLM and stay with it until it ends."""
    return serving.serve(settings, environment, partial(_fetch_in_child, settings, environment))


def check(settings: Settings, environment: Mapping[str, str]) -> int:
    """Do what serve does before vLLM starts, but ask the hub what a download would take instead of it.

    The port is not looked at: an engine that runs already may hold it, and `serve` looks for itself.
    """
    with Inbox() as inbox:
        survey = partial(_fetch_in_child, settings, environment, inbox, dry_run=True)
        prepared = preflight.prepare(settings, environment, lambda: survey() and False)
    if prepared is None:
        log.info("the settings are sound; the weights are not on this machine yet, and the hub has them")
    else:
        log.info("all is sound")
    return 0


def fetch(settings: Settings, environment: Mapping[str, str], *, dry_run: bool = False) -> int:
    """Download the weights, or bring them up to date, and check them; or only ask what there is to download."""
    caches = with_caches(settings, environment)
    if weights.may_ask_hub(settings, environment):
        _enter_environment({**environment, **caches, **weights.hub_environment(settings)}, dry_run=dry_run)
        weights.download(settings, caches, dry_run=dry_run)
        if dry_run:
            return 0
    folder = weights.locate(settings, caches)
    if folder is None:
        raise errors.WeightsUnreachable(weights.unreachable(settings, "fetching is off here"))
    checkpoints.inspect(folder)
    log.info("%s is whole", settings.model)
    return 0


def _enter_environment(wanted: Mapping[str, str], *, dry_run: bool) -> None:
    """Run this command anew in the wanted environment: the hubs' clients read theirs while they are imported."""
    if settings_module.process_environment() != wanted:
        words = (sys.executable, "-m", "launcher", "fetch", *(("--dry-run",) if dry_run else ()))
        os.execve(sys.executable, words, dict(wanted))  # noqa: S606  (no shell is wanted)


def health(settings: Settings, _environment: Mapping[str, str]) -> int:
    """Ask the first engine's /health."""
    return 0 if healthy(*serving.health_address(settings), timeout_seconds=_PROBE_TIMEOUT_SECONDS) else 1


def status(settings: Settings, _environment: Mapping[str, str]) -> int:
    """Print what the running launcher says of itself and its engines; 1 if there is none."""
    text = fetch_status(serving.local(settings.host), settings.status_port) if settings.status_port else None
    if text is None:
        sys.stderr.write(f"launcher: none answers on ENGINE_STATUS_PORT={settings.status_port}\n")
        return 1
    sys.stdout.write(text + "\n")
    return 0


def print_last_words(settings: Settings, environment: Mapping[str, str]) -> int:
    """Print what the last engine that ended abnormally left behind; 1 if none did."""
    folder = last_words.place(settings.cache_dir, environment)
    words = last_words.newest(folder)
    if words is None:
        sys.stderr.write(f"launcher: there are no last words below {folder}\n")
        return 1
    sys.stdout.write(last_words.as_text(words))
    return 0


def reference(_settings: Settings, _environment: Mapping[str, str]) -> int:
    """Print every setting with its default, as for .env.example."""
    sys.stdout.write(settings_module.reference())
    return 0


def _fetch_in_child(
    settings: Settings,
    environment: Mapping[str, str],
    inbox: Inbox,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
) -> bool:
    """Run `fetch` as a process of its own, so that a stop is obeyed at once; False if it was stopped."""
    begin = time.monotonic()
    where = settings.hub_endpoint or settings.hub
    log.info("fetching %s from %s", settings.model, where)
    if progress is not None:
        progress.enter(Stage.DOWNLOADING, f"{settings.model} from {where}")
    words = (sys.executable, "-m", "launcher", "fetch", *(("--dry-run",) if dry_run else ()))
    outcome = errand.run(Command(words, environment), inbox, _DOWNLOAD_STOP_SECONDS)
    if outcome.stopped_by is not None:
        log.info("stopped while fetching")
        return False
    if outcome.status:
        # The child has explained itself on the same stream; its code is the reason.
        raise SystemExit(outcome.status if outcome.status > 0 else 128 - outcome.status)
    log.info("fetched in %.1f s", time.monotonic() - begin)
    return True
