"""What this host is like: ports, disk, memory, name service, clock. A line each; trouble in the words of host.py."""

import contextlib
import email.utils
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from ops.errors import StackError
from ops.host import require_free_ports
from ops.settings import Settings

DISK_LOW_GB = 2
MEMORY_LOW_GB = 1.5
SHARED_MEMORY_MB = 160  # the launcher's own floor
CLOCK_OFF_SECONDS = 60
HUB_SECONDS = 5
KERNEL_LINES = 2000
HUBS = {"huggingface": "https://huggingface.co", "modelscope": "https://modelscope.cn"}
_GB = 1e9


def probe_ports(ports: Mapping[str, int]) -> Iterator[str]:
    """Look whether each port could be listened on now."""
    for name, port in ports.items():
        try:
            require_free_ports({name: port})
        except StackError as error:
            why = "needs root" if "root" in str(error) else "is taken by another program"
            yield f"port {port} ({name}) {why}"
        else:
            yield f"port {port} ({name}) is free"


def probe_disk(folder: Path) -> Iterator[str]:
    """Look at the disk that holds a folder."""
    usage = shutil.disk_usage(folder)
    word = "disk is low" if usage.free / _GB < DISK_LOW_GB else "disk"
    yield f"{word}: {usage.free / _GB:.1f} GB free of {usage.total / _GB:.0f} GB where {folder} lies"


def probe_memory(meminfo: Path = Path("/proc/meminfo"), shared: Path = Path("/dev/shm")) -> Iterator[str]:  # noqa: S108 - only its size
    """Look at the host's memory, and at the part that processes share."""
    with contextlib.suppress(OSError):
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in meminfo.read_text().splitlines()}
        available, total = (kilobytes.get(name, 0) * 1024 / _GB for name in ("MemAvailable", "MemTotal"))
        yield f"memory{' is low' if available < MEMORY_LOW_GB else ''}: {available:.1f} GB available of {total:.1f} GB"
    with contextlib.suppress(OSError):
        size = shutil.disk_usage(shared).total / 1e6
        yield f"shared memory{' is small' if size < SHARED_MEMORY_MB else ''}: {size:.0f} MB"


def probe_hub(settings: Settings) -> Iterator[str]:
    """Ask the weights' hub for nothing: its name, its answer, and its clock."""
    hub = settings.environment.get("ENGINE_HUB", "huggingface")
    url = settings.environment.get("ENGINE_HUB_ENDPOINT") or HUBS.get(hub, HUBS["huggingface"])
    yield from ask_hub(url)


def ask_hub(url: str) -> Iterator[str]:
    """Look a hub up and ask it, within some seconds."""
    host = urlsplit(url).hostname or ""
    try:
        answer = httpx.head(url, timeout=HUB_SECONDS)
    except httpx.HTTPError as error:
        if not _resolves(host):
            yield f"the name {host} cannot be resolved"
            return
        yield f"the hub {url} cannot be reached: {type(error).__name__} {error}"
        return
    yield f"the hub {url} answers with {answer.status_code}"
    told = email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp() if "date" in answer.headers else None
    if told is not None and abs(time.time() - told) > CLOCK_OFF_SECONDS:
        yield f"the clock is {abs(time.time() - told):.0f} s off that of {host}"


def read_kernel() -> list[str]:
    """Return what the kernel's log says of NVIDIA's driver and of killed programs; nothing if it is not shown."""
    journal = ["journalctl", "-k", "-q", "--no-pager", "-o", "short-iso", "-n", str(KERNEL_LINES)]
    # With times where it can: not every dmesg does.
    for command in (journal, ["dmesg", "--time-format", "iso"], ["dmesg"]):
        if shutil.which(command[0]) is None:
            continue
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=HUB_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0 and done.stdout.strip():
            return [line for line in done.stdout.splitlines() if "NVRM" in line or "Killed process" in line]
    return []


def describe_host() -> Iterator[str]:
    """Return what a report needs to know of the host."""
    with contextlib.suppress(OSError):
        for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
            if line.startswith("PRETTY_NAME="):
                yield f"system: {line.partition('=')[2].strip(chr(34))}"
    yield f"kernel: {os.uname().release}, {os.uname().machine}, {os.cpu_count()} cores"


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def has_docker() -> bool:
    """Whether Docker's command is installed here."""
    return shutil.which("docker") is not None
