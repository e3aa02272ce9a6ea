"""The gateway as a process of its own, before a sound engine in a thread of this one."""

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.conftest import free_ports
from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import UNLIMITED

START_SECONDS = 20


class Service:
    """A gateway that serves, seen from outside only."""

    def __init__(self, url: str, session: requests.Session) -> None:
        self.url = url
        self.session = session

    def get(self, path: str) -> requests.Response:
        """Ask for a path."""
        return self.session.get(self.url + path, timeout=10)

    def in_flight(self) -> int:
        """Return what the gateway itself counts as open: requests, and leases of its engine."""
        page = self.get("/metrics").text.splitlines()
        gauge = next(line for line in page if line.startswith("gateway_requests_in_flight "))
        engines = self.get("/readyz?verbose").json()["engines"]
        return int(float(gauge.split()[1])) + sum(engine["outstanding"] for engine in engines)


@contextmanager
def served() -> Iterator[Service]:
    """Start engine and gateway; at the end the gateway must stop in order and have logged no error."""
    port = free_ports(["gateway"])["gateway"]
    with _engine() as engine, tempfile.TemporaryFile("w+") as log, requests.Session() as session:
        session.trust_env = False
        environment = {"GATEWAY_PORT": str(port), "GATEWAY_UPSTREAMS": engine.url, "GATEWAY_WARMUP": "off", **UNLIMITED}
        command = [sys.executable, "-m", "gateway"]
        process = subprocess.Popen(command, env=environment, cwd=Path("/"), stdout=log, stderr=log)
        try:
            service = Service(f"http://127.0.0.1:{port}", session)
            _wait_until_ready(service, process)
            yield service
        finally:
            process.terminate()
            code = process.wait(START_SECONDS)
        log.seek(0)
        lines: list[dict[str, Any]] = [json.loads(line) for line in log]
        assert code == 0
        assert [line for line in lines if line["level"] == "error"] == []


def _wait_until_ready(service: Service, process: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at:
        assert process.poll() is None, "the gateway did not start"
        try:
            if service.get("/readyz").ok:
                return
        except requests.ConnectionError:
            time.sleep(0.02)
    raise AssertionError("the gateway did not become ready")


@contextmanager
def _engine() -> Iterator[FakeEngine]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    engine = FakeEngine()
    try:
        asyncio.run_coroutine_threadsafe(engine.start(), loop).result(5)
        yield engine
        asyncio.run_coroutine_threadsafe(engine.stop(), loop).result(5)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
