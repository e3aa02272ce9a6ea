"""The processes beside the client: the paced engine and a real gateway, each on its core."""

import asyncio
import os
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 30.0
STOP_SECONDS = 10.0
# Runnable, but others had the core: on an idle machine next to nothing.
WAITING = "gateway_waiting"
# The clock of a whole process, as clock_getcpuclockid(3) composes it.
_CPU_CLOCK = 2
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Paths:
    """The two ways to the engine, by port, and the processes on them."""

    direct: int
    gateway: int
    pids: dict[str, int]

    def clocks_ns(self) -> dict[str, int]:
        """Return the CPU time that each process has had so far, and the time that the gateway has waited for it."""
        clocks = {name: time.clock_gettime_ns(~pid << 3 | _CPU_CLOCK) for name, pid in self.pids.items()}
        _, waited, _ = Path(f"/proc/{self.pids['gateway']}/schedstat").read_text().split()
        return {**clocks, WAITING: int(waited)}


@asynccontextmanager
async def running_paths(scratch: Path) -> AsyncIterator[Paths]:
    """Start an engine and a gateway before it, and stop both at the end.

    With two cores or more the gateway has the last one for itself, the engine and the client share the others.
    Raises RuntimeError if the gateway does not find the engine sound in time.
    """
    *others, last = sorted(os.sched_getaffinity(0))
    others = others or [last]
    os.sched_setaffinity(0, others)
    async with _running("bench.gateway.engine", {}, ROOT, others, stdout=PIPE) as engine:
        if engine.stdout is None:
            raise RuntimeError("the engine has no output")
        engine_port = int(await engine.stdout.readline())
        gateway_port = _free_port()
        settings = {
            "GATEWAY_PORT": str(gateway_port),
            "GATEWAY_UPSTREAMS": f"http://127.0.0.1:{engine_port}",
            # So high that nobody meets them: what they cost is part of what is measured.
            "GATEWAY_RATE_LIMIT_REQUESTS": "1000000000/minute",
            "GATEWAY_RATE_LIMIT_TOKENS": "1000000000/minute",
            "GATEWAY_MAX_STREAMS_PER_CLIENT": "1000000",
            # The limit that is learned needs figures that this engine does not have.
            "GATEWAY_MAX_IN_FLIGHT": "4096",
        }
        async with _running("gateway", settings, scratch, [last], stdout=DEVNULL) as gateway:
            await _become_ready(gateway, gateway_port)
            pids = {"client": os.getpid(), "engine": engine.pid, "gateway": gateway.pid}
            yield Paths(engine_port, gateway_port, pids)


@asynccontextmanager
async def _running(
    module: str, environment: dict[str, str], folder: Path, cores: list[int], *, stdout: int
) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, env=environment, cwd=folder, stdout=stdout
    )
    try:
        os.sched_setaffinity(process.pid, cores)
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), STOP_SECONDS)


async def _become_ready(gateway: Process, port: int) -> None:
    ends_at = time.monotonic() + READY_SECONDS
    while not await _is_ready(port):
        if gateway.returncode is not None or time.monotonic() > ends_at:
            raise RuntimeError(f"the gateway did not become ready (exit code: {gateway.returncode})")
        await asyncio.sleep(0.1)


async def _is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: gateway\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
