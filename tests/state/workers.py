"""`python -m gateway` with several workers, as a process: what it answers, what it logs, which processes it has."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import free_ports
from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import CHAT, NO_TLS, STREAMED, UNLIMITED, RawClient
from tests.state.server import Server

# A machine that does much else.
PATIENCE_SECONDS = 120.0
# `python -m gateway`, which waits longer than 50 ms for answers of Valkey, as in `patient_gateways`.
RUN = """
import sys
from gateway.limits import valkey
valkey.ANSWER_SECONDS = 3.0
from gateway.__main__ import main
sys.exit(main([]))
"""


class Workers:
    """The running process; every call is a connection of its own, so that any worker may get it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port
        self.log: list[dict[str, Any]] = []
        self.broken: list[bytes] = []
        self._logged = asyncio.Condition()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout
        async for line in self.process.stdout:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.broken.append(line)
            async with self._logged:
                self._logged.notify_all()

    async def logged(self, message: str, number: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """Wait until so many lines say this, and return them."""

        def found() -> list[dict[str, Any]]:
            wanted = {"message": message, **fields}
            return [line for line in self.log if wanted.items() <= line.items()]

        async with asyncio.timeout(PATIENCE_SECONDS), self._logged:
            await self._logged.wait_for(lambda: len(found()) >= number)
        return found()

    async def call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send one request on a new connection."""
        async with httpx.AsyncClient(trust_env=False, verify=NO_TLS, timeout=PATIENCE_SECONDS) as client:
            return await client.request(method, f"http://127.0.0.1:{self.port}{path}", **arguments)

    async def chat(self, **arguments: Any) -> httpx.Response:
        """Ask for a whole answer."""
        return await self.call("POST", "/v1/chat/completions", **{"json": CHAT, **arguments})

    async def stream(self) -> RawClient:
        """Ask for a stream, to be read or cut at will."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps(STREAMED).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        return RawClient(reader, writer)

    async def metrics(self) -> dict[str, float]:
        """Return the page's samples by series."""
        page = (await self.call("GET", "/metrics")).text
        lines = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
        assert len({series for series, _, _ in lines}) == len(lines)
        return {series: float(value) for series, _, value in lines}

    async def metric_becomes(self, series: str, value: float) -> None:
        """Wait until a sample has a value."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.metrics()).get(series, 0.0) != value:  # noqa: ASYNC110  (another process)
                await asyncio.sleep(0.02)

    def children(self) -> list[int]:
        """Return the watcher's and the workers' process ids, in this order at first."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text(encoding="ascii").split()]

    def holders(self, clients: list[RawClient]) -> list[int]:
        """Return which process has the other end of each connection."""
        inodes = _inodes_of_port(self.port)
        owners = {link: pid for pid in self.children() for link in _sockets_of(pid)}
        ports = [client.writer.get_extra_info("sockname")[1] for client in clients]
        return [owners[f"socket:[{inodes[port]}]"] for port in ports]

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
            await self.reading
        return code


def _inodes_of_port(port: int) -> dict[int, str]:
    """Return the inodes of the server's connections by their clients' ports."""
    found = {}
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, local, remote, state, *rest = line.split()
        if int(local.rpartition(":")[2], 16) == port and state == "01":
            found[int(remote.rpartition(":")[2], 16)] = rest[5]
    return found


def _sockets_of(pid: int) -> set[str]:
    links = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.add(os.readlink(link))  # noqa: PTH115  (no path, but a kind and a number)
        except FileNotFoundError:
            continue
    return links


def is_alive(pid: int) -> bool:
    """Tell whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@asynccontextmanager
async def workers(engine: FakeEngine, valkey: Server, port: int = 0, **settings: str) -> AsyncIterator[Workers]:
    """Start two workers before an engine, wait until they are ready, and see at the end that nothing is left."""
    port = port or free_ports(["gateway"])["gateway"]
    environment = {
        "GATEWAY_PORT": str(port),
        "GATEWAY_UPSTREAMS": engine.url,
        "GATEWAY_STATE_URL": valkey.url,
        "GATEWAY_WORKERS": "2",
        "GATEWAY_PROBE_INTERVAL_SECONDS": "0.2",
        **UNLIMITED,
        **settings,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN, env=environment, cwd=Path("/"), stdout=asyncio.subprocess.PIPE
    )
    running = Workers(process, port)
    try:
        await running.logged("engine state", state="ready")
        await _becomes_ready(running)
        yield running
    finally:
        children = running.children() if process.returncode is None else []
        if process.returncode is None:
            assert await running.end() == 0
        assert running.broken == []
        assert not any(is_alive(pid) for pid in children)


async def _becomes_ready(running: Workers) -> None:
    """Wait until the limits are shared by both workers, and each has heard of the engine."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await running.metrics())["gateway_state_degraded"]:  # noqa: ASYNC110  (another process)
            await asyncio.sleep(0.05)
    ready = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while ready < 8:
            ready = ready + 1 if (await running.call("GET", "/readyz")).status_code == 200 else 0
