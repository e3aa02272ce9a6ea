"""What one container says of itself: its state for people, its details for the doctor, what its processes hold."""

from collections.abc import Sequence

from docker.errors import DockerException
from docker.models.containers import Container

from ops.way import ServiceState, Usage

GIVE_UP_AFTER_RESTARTS = 3
ENDED = ("restarting", "exited", "dead")
# With no proxy of the environment in between, and the body of an error as well.
FETCH = """
import sys, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    sys.stdout.buffer.write(opener.open(sys.argv[1], timeout=5).read())
except urllib.error.HTTPError as error:
    sys.stdout.buffer.write(error.read())
"""
# Every image has a shell; the loop's own process is counted too, and always the same.
COUNT = """
cat /proc/[0-9]*/status 2>/dev/null | grep -E '^(VmRSS|Threads):'
for folder in /proc/[0-9]*/fd; do ls "$folder" 2>/dev/null; done | wc -l
"""
KILL_CHILDREN = """
for folder in /proc/[0-9]*; do
  pid=${folder#/proc/}
  [ "$pid" = 1 ] || [ "$pid" = $$ ] || kill -9 "$pid"
done 2>/dev/null
true
"""


def state_of(container: Container) -> ServiceState:
    """Return the state in a word; one that was restarted too often has given up."""
    state = container.attrs["State"]
    health = state.get("Health", {}).get("Status", "starting")
    restarts = container.attrs.get("RestartCount", 0)
    if state["Status"] in ENDED:
        code = state.get("ExitCode")
        return ServiceState(f"ended with {code}, restarts: {restarts}", failed=restarts >= GIVE_UP_AFTER_RESTARTS)
    if state["Status"] != "running":
        return ServiceState("waiting" if state["Status"] == "created" else state["Status"])
    return ServiceState(health, healthy=health == "healthy")


def merge(states: Sequence[ServiceState]) -> ServiceState:
    """Return one state for all containers of a service (`docker compose up --scale`); none is waiting."""
    if len(states) <= 1:
        return states[0] if states else ServiceState("waiting")
    healthy = sum(state.healthy for state in states)
    others = sorted({state.word for state in states if not state.healthy})
    words = [f"{healthy} of {len(states)} healthy", *others]
    # The service works while one of them does.
    return ServiceState("; ".join(words), healthy=healthy > 0, failed=all(state.failed for state in states))


def note_of(container: Container) -> str:
    """Return all that Docker knows of a container's end or health, on one line."""
    state = container.attrs["State"]
    parts = [f"{container.name}: {state['Status']}", f"restarts {container.attrs.get('RestartCount', 0)}"]
    if state["Status"] in ENDED or state.get("ExitCode"):
        parts.append(f"exit code {state.get('ExitCode')}")
    if state.get("OOMKilled"):
        parts.append("killed for want of memory (OOMKilled)")
    if state.get("Error"):
        parts.append(f"error: {' '.join(state['Error'].split())}")
    health = state.get("Health") or {}
    if health:
        parts.append(f"health: {health.get('Status')}")
    checks = health.get("Log") or []
    if checks and health.get("Status") != "healthy":
        parts.append(f"the check said: {' '.join(str(checks[-1].get('Output', '')).split())}")
    return ", ".join(parts)


def run_inside(container: Container, command: Sequence[str]) -> str | None:
    """Run a command in the container and return what it prints; None if it fails or the container is gone by now."""
    try:
        code, output = container.exec_run(list(command), stderr=False)
    except (DockerException, OSError):
        return None
    return output.decode(errors="replace") if code == 0 and isinstance(output, bytes) else None


def usage_of(container: Container) -> Usage:
    """Return what the container's processes hold."""
    lines = (run_inside(container, ["sh", "-c", COUNT]) or "0").splitlines()
    kilobytes = sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    threads = sum(int(line.split()[1]) for line in lines if line.startswith("Threads"))
    started = str(container.attrs["State"].get("StartedAt"))
    return Usage(kilobytes * 1024, int(lines[-1]), threads, started)


def total(parts: Sequence[Usage]) -> Usage:
    """Return the sum over a service's containers."""
    return Usage(
        sum(part.memory_bytes for part in parts),
        sum(part.handles for part in parts),
        sum(part.threads for part in parts),
        ", ".join(sorted(part.started_at for part in parts)),
    )
