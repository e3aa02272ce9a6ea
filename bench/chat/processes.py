"""The processes beside the browsers: a paced gateway, the real chat page, and the real nginx before it."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.edge.server import Edge

START_SECONDS = 120.0
STOP_SECONDS = 20.0
ROOT = Path(__file__).parents[2]
# The clock of a whole process, as clock_getcpuclockid(3) composes it.
_CPU_CLOCK = 2
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Page:
    """Where the page is opened, and its process."""

    url: str
    pid: int

    @property
    def cpu_ns(self) -> int:
        """CPU time of the page's process so far."""
        return time.clock_gettime_ns(~self.pid << 3 | _CPU_CLOCK)

    @property
    def waited_ns(self) -> int:
        """Time that it was ready to run and others had the cores."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1])

    @property
    def resident_bytes(self) -> int:
        """Memory of the page's process."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES


@asynccontextmanager
async def running_page(scratch: Path) -> AsyncIterator[Page]:
    """Start all three and stop them at the end; raises TimeoutError where the page does not come up."""
    edge = Edge(scratch / "nginx", NGINX_RATE_LIMIT_REQUESTS="off", NGINX_MAX_CONNECTIONS_PER_CLIENT="off")
    async with _running("bench.chat.engine", {}) as engine:
        settings = {
            "CHAT_UI_PORT": str(edge.chat_port),
            "CHAT_UI_GATEWAY_URL": f"http://127.0.0.1:{(await _line(engine)).strip()}",
            "CHAT_UI_SESSION_TIMEOUT_SECONDS": "1",
            "CHAT_UI_DISCONNECT_GRACE_SECONDS": "1",
            "PYTHONPATH": str(ROOT / "services/chat-ui"),
            "TMPDIR": str(scratch),
        }
        async with _running("chat_ui", settings) as page:
            while "chat page on" not in await _line(page):
                pass
            edge.start()
            reading = asyncio.create_task(_drain(page))
            try:
                yield Page(edge.url, page.pid)
            finally:
                edge.stop()
                reading.cancel()


@asynccontextmanager
async def _running(module: str, settings: dict[str, str]) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, env=settings, cwd=ROOT, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), STOP_SECONDS)


async def _line(process: Process) -> str:
    if process.stdout is None:
        raise RuntimeError("the process has no output")
    line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
    if not line:
        raise RuntimeError(f"the process has ended: {await process.wait()}")
    return line.decode()


async def _drain(process: Process) -> None:
    while process.stdout and await process.stdout.readline():
        pass
