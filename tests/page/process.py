"""The real page as a process that tells what it holds, before a gateway that answers as it is asked to."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from tests.browser.faulty_gateway import FaultyGateway
from tests.conftest import ROOT, clean_environment, free_ports

# Chainlit takes seconds to import; on a machine with much else to do, a minute.
PATIENCE_SECONDS = 60.0
LINE_BYTES = 1_000_000


@dataclass
class ObservedPage:
    """A chat page, its gateway, and what the page's process holds."""

    url: str
    gateway: FaultyGateway
    process: Process

    async def held(self) -> dict[str, int]:
        """Return how many objects of each kind, tasks, files and bytes the process holds."""
        self.process.send_signal(signal.SIGUSR1)
        told: dict[str, int] = json.loads(await self.line_with("held "))
        return told

    async def line_with(self, mark: str) -> str:
        """Return the rest of the next line of its log that has a mark."""
        assert self.process.stdout
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                assert "Traceback" not in line, line
                if mark in line:
                    return line.partition(mark)[2]
        raise AssertionError("the page has ended")

    async def ends(self) -> None:
        """Wait for the end of the process, which has complained of nothing."""
        assert self.process.stdout
        async with asyncio.timeout(PATIENCE_SECONDS):
            rest = await self.process.stdout.read()
        assert b"Traceback" not in rest, rest.decode()
        await self.process.wait()

    async def guest(self) -> dict[str, str]:
        """Return the headers of a browser that was never here: with the cookie that its first page brings."""
        async with httpx.AsyncClient() as client:
            page = await client.get(self.url, headers={"accept": "text/html"})
        return {"Cookie": page.headers["set-cookie"].partition(";")[0], "Accept-Language": "en-US"}


@asynccontextmanager
async def running_page(folder: Path, *bounds: str, **settings: str) -> AsyncIterator[ObservedPage]:
    """Run a page that forgets quickly, with other bounds for browsers that do not read if they are given."""
    ports = free_ports(["GATEWAY", "CHAT_UI"])
    defaults = {
        "CHAT_UI_PORT": str(ports["CHAT_UI"]),
        "CHAT_UI_GATEWAY_URL": f"http://127.0.0.1:{ports['GATEWAY']}",
        "CHAT_UI_DISCONNECT_GRACE_SECONDS": "5",
        "CHAT_UI_SESSION_TIMEOUT_SECONDS": "6",
        "TMPDIR": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.page.observed", *bounds]
    gateway = FaultyGateway()
    async with _serving(gateway, ports["GATEWAY"]):
        process = await asyncio.create_subprocess_exec(
            *command,
            env=clean_environment(**defaults | settings),
            cwd=ROOT,
            stdout=PIPE,
            stderr=STDOUT,
            limit=LINE_BYTES,
        )
        try:
            page = ObservedPage(f"http://127.0.0.1:{ports['CHAT_UI']}", gateway, process)
            await page.line_with("chat page on")
            yield page
            process.terminate()
            await page.ends()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens in another process and sends no event here."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _serving(gateway: FaultyGateway, port: int) -> AsyncIterator[None]:
    """Serve a gateway in this loop."""
    server = uvicorn.Server(
        uvicorn.Config(gateway.application(), port=port, log_level="error", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await task
