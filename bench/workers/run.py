"""What several workers carry, and that their limits are exact: `python -m bench.workers.run [--valkey redis://…]`.

For each number of workers a whole gateway is started before a paced engine (`bench.gateway.engine`). First, with
`--valkey`, more is asked than the limit of 1,000 an hour lets pass. Then, without limits, whole answers are asked for
as fast as can be. Prints one Markdown table. Needs the gateway's own packages only; without `--valkey` no server.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

ROOT = Path(__file__).parents[2]
LIMIT = 1000
LOG = "gateway.log"
READY_SECONDS, STOP_SECONDS = 120.0, 60.0
LOOKS = 50
# Nobody listens there: without limits nothing is asked of it.
NO_VALKEY = "redis://127.0.0.1:9"
BODY = json.dumps({"messages": [{"role": "user", "content": "0"}], "max_tokens": 1}).encode()
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it is answered, until it has had its answers or is stopped."""

    def __init__(self, number: int | None) -> None:
        self._left = number
        self._received = b""
        self.statuses: Counter[str] = Counter()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        """Count an answer when it is complete."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        if not end or len(body) < int(length):
            return
        self._received = b""
        self.statuses[head[9:12].decode()] += 1
        if self._left is not None:
            self._left -= 1
        if self._left == 0 or self.over.done():
            self.end()
        else:
            self._transport.write(REQUEST)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """End."""
        self.end()

    def end(self) -> None:
        """Ask no more."""
        if not self.over.done():
            self.over.set_result(None)
        self._transport.close()


async def _load(port: int, clients: int, seconds: float | None, number: int | None) -> tuple[Counter[str], float]:
    loop = asyncio.get_running_loop()
    made = [(await loop.create_connection(lambda: Client(number), "127.0.0.1", port))[1] for _ in range(clients)]
    if seconds is None:
        await asyncio.gather(*(client.over for client in made))
        return sum((client.statuses for client in made), Counter()), 0.0
    await asyncio.sleep(seconds / 5)
    before, began_at = sum((client.statuses for client in made), Counter()), time.monotonic()
    await asyncio.sleep(seconds)
    counted, took = sum((client.statuses for client in made), Counter()), time.monotonic() - began_at
    for client in made:
        client.end()
    counted.subtract(before)
    return +counted, took


def load(port: int, clients: int, seconds: float | None, number: int | None) -> tuple[Counter[str], float]:
    """Ask from so many connections, in a process of its own; return the statuses and the seconds."""
    return uvloop.run(_load(port, clients, seconds, number))


@asynccontextmanager
async def running(module: str, environment: dict[str, str], folder: Path, *, stdout: int) -> AsyncIterator[Process]:
    """Run a module as a process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, env=environment, cwd=folder, stdout=stdout
    )
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), STOP_SECONDS)


@asynccontextmanager
async def gateway(engine: int, workers: int, valkey: str, limit: str, folder: Path) -> AsyncIterator[tuple[int, int]]:
    """Start a gateway and wait until it is ready; yields its port and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "PYTHONPATH": str(ROOT / "services/gateway"),
        "GATEWAY_PORT": str(port),
        "GATEWAY_UPSTREAMS": f"http://127.0.0.1:{engine}",
        "GATEWAY_STATE_URL": valkey,
        "GATEWAY_WORKERS": str(workers),
        "GATEWAY_MAX_IN_FLIGHT": "off",
        "GATEWAY_RATE_LIMIT_REQUESTS": limit,
        "GATEWAY_RATE_LIMIT_TOKENS": "off",
        "GATEWAY_MAX_STREAMS_PER_CLIENT": "off",
    }
    with (folder / LOG).open("wb") as log:
        async with running("gateway", settings, folder, stdout=log.fileno()) as process:
            await _until_ready(port)
            yield port, process.pid


async def _until_ready(port: int) -> None:
    ready, ends_at = 0, time.monotonic() + READY_SECONDS
    # Often enough for every worker to have been asked.
    while ready < LOOKS:
        if time.monotonic() > ends_at:
            raise SystemExit("the gateway did not become ready")
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
            ready = ready + 1 if b" 200 " in await reader.readline() else 0
            writer.close()
        except ConnectionError:
            ready = 0
        await asyncio.sleep(0 if ready else 0.1)
    # Each worker has seen Valkey by then, and all the others there.
    await asyncio.sleep(2.5)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of those that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    ticks = 0
    for one in [str(pid), *children]:
        fields = Path(f"/proc/{one}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def measure(arguments: argparse.Namespace, workers: int, engine: int, folder: Path) -> list[str]:
    """Return one row of the table."""
    passed = "not asked"
    loop = asyncio.get_running_loop()
    pool = multiprocessing.get_context("spawn").Pool(arguments.loads)

    def all_loads(port: int, seconds: float | None, number: int | None) -> list[tuple[Counter[str], float]]:
        job = (port, arguments.clients // arguments.loads, seconds, number)
        return pool.starmap(load, [job] * arguments.loads)

    with pool:
        if arguments.valkey:
            # A database of its own: what was granted counts for an hour.
            async with gateway(engine, workers, f"{arguments.valkey}/{workers}", f"{LIMIT}/hour", folder) as (port, _):
                number = 2 * LIMIT * workers // arguments.clients + 1
                found = await loop.run_in_executor(None, all_loads, port, None, number)
                statuses = sum((counted for counted, _ in found), Counter())
                passed = f"{statuses['200']:,} of {sum(statuses.values()):,}"
            silent = (folder / LOG).read_bytes().count(b'"state_degraded"')
            passed += f", Valkey silent {silent} times" if silent else ""
        if not arguments.rounds:
            return [str(workers), passed, "not asked", "", ""]
        rates, costs = [], []
        async with gateway(engine, workers, arguments.valkey or NO_VALKEY, "off", folder) as (port, pid):
            for _ in range(arguments.rounds):
                before = cpu_seconds(pid)
                found = await loop.run_in_executor(None, all_loads, port, arguments.seconds, None)
                if any(set(counted) != {"200"} for counted, _ in found):
                    raise SystemExit(f"not all were answered: {found}")
                rates.append(sum(counted["200"] / took for counted, took in found))
                costs.append((cpu_seconds(pid) - before) / (arguments.seconds * 1.2) / rates[-1] * 1e6)
    rate = statistics.median(rates)
    return [
        str(workers),
        passed,
        f"{rate:,.0f}",
        f"{min(rates):,.0f} to {max(rates):,.0f}",
        f"{statistics.median(costs):,.0f}",
    ]


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--valkey", default="", help="what GATEWAY_STATE_URL would be")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--clients", type=int, default=64, help="connections in all")
    parser.add_argument("--loads", type=int, default=2, help="processes that ask")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3, help="of answers as fast as can be; 0: only the limit")
    arguments = parser.parse_args()
    print(
        f"{platform.python_version()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}", file=sys.stderr
    )
    print("| workers | let through at a limit of 1,000 | answers/s | of all rounds | CPU an answer, µs |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        async with running("bench.gateway.engine", {}, ROOT, stdout=PIPE) as engine:
            if engine.stdout is None:
                raise SystemExit("the engine has no output")
            port = int(await engine.stdout.readline())
            for workers in arguments.workers:
                print("|", " | ".join(await measure(arguments, workers, port, Path(scratch))), "|", flush=True)


if __name__ == "__main__":
    uvloop.run(main())
