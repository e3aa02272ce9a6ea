"""The commands that only tell: what this machine is, and what would be started on it or on another."""

import sys
from collections.abc import Mapping
from pathlib import Path

from launcher import hardware, preflight
from launcher.hardware import record
from launcher.settings import Settings


def show_plan(settings: Settings, environment: Mapping[str, str], machine_file: Path | None = None) -> int:
    """Print why each engine starts how, a reason a line, and then its command; nothing is started or fetched."""
    machine = record.read(machine_file) if machine_file else None
    prepared = preflight.foresee(settings, environment, machine)
    if prepared is None:
        return 0
    lines = list(prepared.plan.reasons)
    for index, command in enumerate(prepared.commands):
        added = {name: text for name, text in sorted(command.environment.items()) if environment.get(name) != text}
        title = f"engine {index + 1} on port {settings.engine_port(index)}:"
        lines += ["", title, *(f"{name}={text}" for name, text in added.items()), str(command)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def show_hardware(_settings: Settings, environment: Mapping[str, str]) -> int:
    """Print this machine as JSON, for `plan --hardware` elsewhere."""
    sys.stdout.write(record.write(hardware.detect(environment)))
    return 0
