"""`up`: choose a way, choose a model, start, wait for the proof; take everything back if it fails."""

import time

from rich.console import Console

from ops.containers import Containers
from ops.errors import StackError
from ops.host import Host, inspect_host
from ops.processes import Processes
from ops.proof import Answer, prove
from ops.settings import Settings
from ops.waiting import Waiting
from ops.way import StackWay

DEMO = "demo"
UNREACHABLE = 3  # the launcher's exit code for weights that are neither cached nor to be had


def choose_way(settings: Settings, host: Host | None = None) -> tuple[StackWay, str]:
    """Return the way to run and why: a setting decides, else what the host offers."""
    if settings.way == "native":
        return _natively(settings, "STACK_WAY=native")
    host = host or inspect_host()
    if host.docker:
        return Containers(settings, gpu=host.nvidia), host.why
    if settings.way == "docker":
        raise StackError(f"STACK_WAY=docker, but {host.why}. Install or start Docker, or use STACK_WAY=native.")
    return _natively(settings, host.why)


def _natively(settings: Settings, why: str) -> tuple[StackWay, str]:
    if settings.monitoring:
        raise StackError(f"STACK_MONITORING=on needs Docker, but: {why}. Prometheus and Grafana are containers.")
    return Processes(settings), why


def bring_up(settings: Settings, console: Console, *, demo: bool) -> None:
    """Start the stack and print its address after a real answer; a start that fails leaves nothing running."""
    started = time.monotonic()
    way, why = choose_way(settings)
    console.print(f"Way: [bold]{way.name}[/] ({why}).")
    way.prepare()
    was_up = way.is_up()
    record = settings.run_dir / "model"  # what the running stack was started with
    if demo:
        model = DEMO
    elif was_up and record.exists() and record.read_text(encoding="utf-8") == settings.model:
        # Nothing to decide, and the check would count against the engine the memory that it holds itself.
        model = settings.model
    else:
        model = _reachable_model(way, settings, console)
    try:
        way.start(model)
        answer = _await_answer(way, settings, console)
    except BaseException:
        # Ctrl-C too: nothing may stay behind half-started. A stack that ran before stays: others may be using it.
        if not was_up:
            console.print("[red]Not started.[/] Taking down what was started.")
            way.stop()
        raise
    record.write_text(model, encoding="utf-8")
    _print_success(settings, console, answer, time.monotonic() - started)


def _reachable_model(way: StackWay, settings: Settings, console: Console) -> str:
    verdict = way.check()
    if verdict.code == 0:
        return settings.model
    if verdict.code == UNREACHABLE:
        console.print(f"[yellow]{verdict.message}[/]")
        console.print("[yellow]Falling back to the demo model: a toy that knows this project only.[/]")
        return DEMO
    raise StackError(verdict.message, verdict.code)


def _await_answer(way: StackWay, settings: Settings, console: Console) -> Answer:
    url = address(settings)
    with Waiting(way, console) as waiting:
        # What answers before the start is through may be what is about to be replaced.
        seconds = settings.start_timeout_seconds
        return prove(url, seconds, waiting.report, still_starting=way.is_starting, key=settings.api_key)


def _print_success(settings: Settings, console: Console, answer: Answer, seconds: float) -> None:
    console.print(f"{answer.model} answered in {answer.seconds:.1f} s: {answer.text!r}", markup=False)
    console.print(f"[green]Ready after {seconds:.0f} s.[/]")
    console.print(f"  Chat   {address(settings)}/", highlight=False)
    console.print(f"  API    {address(settings)}/v1", highlight=False)
    console.print("  Stop   make down")


def address(settings: Settings) -> str:
    """Return the stack's address on this host."""
    return f"http://127.0.0.1:{settings.http_port}"


def take_down(settings: Settings, console: Console) -> None:
    """Stop whichever way runs; nothing running is no error."""
    stopped = False
    for way in running_ways(settings):
        console.print(f"Stopping {way.name}.")
        way.stop()
        stopped = True
    console.print("Stopped. Weights and caches stay." if stopped else "Nothing was running.")


def running_ways(settings: Settings) -> list[StackWay]:
    """Return the ways that run something of this stack now."""
    ways: list[StackWay] = [Processes(settings)]
    if inspect_host().docker:
        ways.append(Containers(settings, gpu=True))
    return [way for way in ways if way.is_up()]
