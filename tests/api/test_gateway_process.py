"""The gateway as a process: what it says on its way up, and what its health check tells."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import running_gateway

pytestmark = pytest.mark.process


async def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m gateway` from the environment alone, in a folder that is not ours."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", *arguments),
        env=environment,
        cwd=Path("/"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(started.communicate(), 20)
    return subprocess.CompletedProcess(arguments, started.returncode or 0, output.decode(), errors.decode())


async def test_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = await run(GATEWAY_PORT=port)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"GATEWAY_PORT={port}" in done.stderr
    assert "Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("API_KEYS_FILE", "# ours\nkey alice\n", "line 2 is wrong"),
        ("CHAT_UI_KEY_FILE", "short\n", "holds no key"),
    ],
)
async def test_a_wrong_file_is_one_clear_line(tmp_path: Path, file: str, content: str, said: str) -> None:
    path = tmp_path / "file"
    path.write_text(content, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    done = await run(GATEWAY_PORT=port, **{f"GATEWAY_{file}": str(path)})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"GATEWAY_{file}" in done.stderr
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("workers", ["2", "65"])
async def test_workers_without_what_they_need_are_one_clear_line(workers: str) -> None:
    done = await run(GATEWAY_WORKERS=workers)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert f"GATEWAY_WORKERS='{workers}'" in done.stderr
    assert ("GATEWAY_STATE_URL" if workers == "2" else "64") in done.stderr


async def test_address_that_is_not_ours_is_one_clear_line() -> None:
    done = await run(GATEWAY_HOST="192.0.2.1")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "GATEWAY_HOST=192.0.2.1" in done.stderr


async def test_health_tells_ready_from_not_ready_from_absent(engine: FakeEngine) -> None:
    proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    async with running_gateway(engine) as gateway:
        there = {"GATEWAY_PORT": str(gateway.port), "GATEWAY_HOST": "0.0.0.0", **proxies}
        assert (await run("health", **there)).returncode == 0
        await engine.stop()
        await gateway.becomes("unreachable")
        unready = await run("health", **there)
        assert unready.returncode == 1
        assert "No engine is ready" in unready.stderr
    gone = await run("health", **there)
    assert gone.returncode == 1
    assert "no answer" in gone.stderr


async def test_every_line_of_its_output_is_json(engine: FakeEngine, unused_tcp_port: int) -> None:
    environment = {"GATEWAY_PORT": str(unused_tcp_port), "GATEWAY_UPSTREAMS": engine.url}
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway"),
        env=environment,
        cwd=Path("/"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert started.stdout is not None
    lines = []
    async with asyncio.timeout(20):
        while not lines or lines[-1].get("state") != "ready":
            lines.append(json.loads(await started.stdout.readline()))
        _, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
        writer.write(b"nonsense\r\n\r\n")
        lines.append(json.loads(await started.stdout.readline()))
        writer.close()
        started.send_signal(signal.SIGTERM)
        rest, _ = await started.communicate()
    lines += [json.loads(line) for line in rest.splitlines()]
    assert lines[0]["message"] == "started"
    assert lines[-1]["message"] == "stopped"
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
