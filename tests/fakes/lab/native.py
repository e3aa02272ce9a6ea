"""The lab without Docker: fault engine and gateway as plain processes on free ports of this machine."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from tests.fakes.lab.scorecard import Lab, Row, score

ROOT = Path(__file__).resolve().parents[3]
# As fault-gateway has them in docker-compose.yml: as long as a busy machine needs, and no longer, since the
# scorecard waits for most of them.
SHORT_TIMES = {
    "GATEWAY_CONNECT_TIMEOUT_SECONDS": "0.5",
    "GATEWAY_QUEUE_TIMEOUT_SECONDS": "0.5",
    "GATEWAY_FIRST_TOKEN_TIMEOUT_SECONDS": "1",
    "GATEWAY_ANSWER_TIMEOUT_SECONDS": "1",
    "GATEWAY_IDLE_TIMEOUT_SECONDS": "1",
    "GATEWAY_HEARTBEAT_SECONDS": "0.3",
    "GATEWAY_PROBE_INTERVAL_SECONDS": "0.1",
    "GATEWAY_STALL_SECONDS": "0.8",
}
UNLIMITED = {
    "GATEWAY_RATE_LIMIT_REQUESTS": "off",
    "GATEWAY_RATE_LIMIT_TOKENS": "off",
    "GATEWAY_MAX_STREAMS_PER_CLIENT": "off",
}
STOP_SECONDS = 10.0


async def score_natively() -> AsyncIterator[Row]:
    """Start engine and gateway, score them, stop both; how the gateway stops is the last row."""
    with tempfile.TemporaryFile() as log:
        async with _process("tests.fakes.lab", "engine", "--port", "0", "--control-port", "0") as engine:
            ports = json.loads(await _first_line(engine))
            port = _free_port()
            settings = {
                "GATEWAY_PORT": str(port),
                "GATEWAY_UPSTREAMS": f"http://127.0.0.1:{ports['port']}",
                **SHORT_TIMES,
                **UNLIMITED,
            }
            async with _process("gateway", log=log, **settings) as gateway:
                lab = Lab(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{ports['control_port']}")
                async for row in score(lab):
                    yield row
                yield await _stop(gateway, log)


async def _stop(gateway: asyncio.subprocess.Process, log: IO[bytes]) -> Row:
    """Ask the gateway to stop; it must do so in order, having met no fault of its own in all this."""
    row = Row("gateway-stops", "the gateway is stopped when all is done", "gateway")
    started = time.monotonic()
    gateway.send_signal(signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(gateway.wait(), STOP_SECONDS)
    row.seconds = time.monotonic() - started
    row.saw = f"exit code {gateway.returncode}"
    if gateway.returncode != 0:
        row.complaints.append("should be: exit code 0")
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    row.complaints += [f"logged: {line}" for line in lines if not _is_calm(line)]
    return row


def _is_calm(line: str) -> bool:
    """Tell whether a line of the gateway's log is one of its own, and no error."""
    try:
        return json.loads(line)["level"] not in {"error", "critical"}
    except (ValueError, KeyError, TypeError):
        return False


@contextlib.asynccontextmanager
async def _process(
    module: str, *arguments: str, log: IO[bytes] | None = None, **settings: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Python module, in an environment without the caller's own settings; killed at the end if it still runs."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        cwd=ROOT,
        env=inherited | settings,
        stdout=asyncio.subprocess.PIPE if log is None else log,
        stderr=None if log is None else log,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def _first_line(process: asyncio.subprocess.Process) -> bytes:
    if process.stdout is None:
        raise RuntimeError("its output is not ours to read")
    return await process.stdout.readline()


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
