"""A real vLLM under the launcher: it answers, it ends when asked, and nothing of it outlives the launcher."""

import asyncio
import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from .conftest import Engine, processes_of_group

pytestmark = pytest.mark.engine

NO_KEEPALIVE = httpx.Limits(max_keepalive_connections=0)


def test_it_answers_and_ends_in_time_with_the_running_answer_finished(engine: Engine) -> None:
    models = httpx.get(f"{engine.url}/v1/models", timeout=10).json()["data"]
    assert [model["id"] for model in models] == ["ernie-demo"]
    first = engine.chat("你好")
    assert first["choices"][0]["message"]["content"]
    assert engine.chat("你好")["choices"][0]["message"] == first["choices"][0]["message"]
    assert httpx.get(f"{engine.url}/docs", timeout=10).status_code == 404

    body = {"model": "ernie-demo", "prompt": "1", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{engine.url}/v1/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        begin = time.monotonic()
        engine.process.send_signal(signal.SIGTERM)
        events = [line for line in lines if line]
    assert events[-1] == "data: [DONE]"
    assert engine.process.wait(35) == 0
    assert time.monotonic() - begin < 30
    assert engine.nothing_left(0)
    assert "launcher: stopped on SIGTERM after" in engine.text


def test_a_killed_engine_process_ends_the_launcher_with_a_reason(engine: Engine) -> None:
    os.kill(engine.core(), signal.SIGKILL)
    assert engine.process.wait(30) == 8
    assert "launcher: engine 1 ended by itself" in engine.text
    assert engine.nothing_left(0)
    words = engine.last_words()
    assert words["exit_code"] == 8
    assert words["reason"] in engine.text
    assert words["log"]["engine 1"][-1] in engine.text


def test_the_stages_of_a_start_are_told_in_order(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "engine.log", ENGINE_MODEL="demo")
    seen: list[str] = []
    try:
        while not seen or seen[-1] != "serving":
            assert engine.process.poll() is None, engine.text
            with contextlib.suppress(httpx.TransportError):  # its first second
                stage = engine.status()["stage"]
                seen += [stage] if seen[-1:] != [stage] else []
            time.sleep(0.02)
        assert seen[-1] == "serving"
        assert [stage for stage in seen if stage in {"starting", "loading", "warming", "serving"}] == seen[-4:]
        assert set(seen[:-4]) <= {"checking", "waiting"}
        report = engine.status()["engines"][0]
        assert report["port"] == engine.port
        assert report["started_at"] < report["since"]
        assert "launcher: engine 1: loading took " in engine.text
        engine.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 10
        while engine.status()["stage"] != "stopping":
            assert time.monotonic() < until
        assert engine.process.wait(35) == 0
    finally:
        engine.end()


async def test_a_full_queue_of_long_prompts_is_no_stall(start: Callable[..., Engine]) -> None:
    """More work than fits, for three times the limit: only what moves tells that it lives."""
    engine = await asyncio.to_thread(start, ENGINE_STALL_SECONDS="6", ENGINE_MAX_SEQUENCES="2")
    body = {"model": "ernie-demo", "prompt": "1 " * 1500, "max_tokens": 300, "ignore_eos": True}
    until = time.monotonic() + 18
    statuses: set[int] = set()

    async def keep_asking(client: httpx.AsyncClient) -> None:
        while time.monotonic() < until:
            statuses.add((await client.post(f"{engine.url}/v1/completions", json=body)).status_code)

    async with httpx.AsyncClient(timeout=300) as client:
        await asyncio.gather(*(keep_asking(client) for _ in range(20)))
    assert statuses == {200}
    assert engine.process.poll() is None
    assert "stood still" not in engine.text


def test_an_engine_that_stands_still_is_found_killed_and_explained(start: Callable[..., Engine]) -> None:
    """SIGSTOP to the process that computes; /health goes on saying 200."""
    engine = start(ENGINE_STALL_SECONDS="6")
    core = engine.core()
    body = {"model": "ernie-demo", "prompt": "1", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{engine.url}/v1/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        os.kill(core, signal.SIGSTOP)
        begin = time.monotonic()
        assert httpx.get(f"{engine.url}/health", timeout=5).status_code == 200
        assert engine.process.wait(60) == 11
    seconds = time.monotonic() - begin
    assert 5 < seconds < 25
    told = re.search(r"launcher: engine 1 answered nothing and computed nothing for (\d+) s", engine.text)
    assert told, engine.text
    # Looks are a second apart, more on a busy machine.
    assert 6 <= int(told[1]) <= seconds + 1
    assert engine.nothing_left(0)
    words = engine.last_words()
    assert words["exit_code"] == 11
    stopped = next(process for process in words["processes"] if process["pid"] == core)
    assert stopped["state"].startswith("T")
    stacks = "\n".join(words["log"]["engine 1"])
    assert "Fatal Python error: Aborted" in stacks
    assert "run_busy_loop" in stacks, "where the process that computes stood"


def test_two_api_servers_stop_in_order(start: Callable[..., Engine], tmp_path: Path) -> None:
    """The notice reaches every one of them: no health check says 200 any more.

    Only `vllm serve` has several, and it looks for a distribution of the name that the CPU wheel does not have.
    """
    information = tmp_path / "distributions/vllm-0.32.0+cpu.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    engine = start(ENGINE_API_SERVERS="2", PYTHONPATH=str(information.parent))
    titles = processes_of_group(engine.group).values()
    assert len([title for title in titles if "ApiServer" in title or "APIServer" in title]) >= 2, titles
    assert engine.chat("你好")["choices"][0]["message"]["content"]
    statuses: list[int] = []
    with ThreadPoolExecutor() as pool, httpx.Client(timeout=5, limits=NO_KEEPALIVE) as client:
        begun = threading.Event()
        stream = pool.submit(_stream, engine.url, begun)
        assert begun.wait(30)
        engine.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 5
        while "stopping on SIGTERM" not in engine.text:
            assert time.monotonic() < until
        # Within the second of the notice, each time on a new connection, so both have answered.
        until = time.monotonic() + 0.7
        while time.monotonic() < until:
            statuses.append(client.get(f"{engine.url}/health").status_code)
        lines = stream.result(30)
    assert len(statuses) > 20
    assert set(statuses[5:]) == {503}
    # vLLM itself would end it with an error event: the launcher waits for it before it asks vLLM to end.
    assert lines[-1] == "data: [DONE]", lines[-3:]
    assert engine.process.wait(35) == 0
    assert engine.nothing_left(0)


def _stream(url: str, begun: threading.Event) -> list[str]:
    """Lines of an answer that takes some seconds; `begun` is set with the first."""
    body = {"model": "ernie-demo", "prompt": "你好", "max_tokens": 900, "ignore_eos": True, "stream": True}
    lines: list[str] = []
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=30) as answer:
        for line in answer.iter_lines():
            begun.set()
            lines += [line] if line else []
    return lines


def test_nothing_outlives_a_killed_launcher(engine: Engine) -> None:
    engine.process.kill()
    assert engine.nothing_left(15)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{engine.url}/health", timeout=5)


def test_the_end_of_one_engine_is_the_end_of_both(tmp_path: Path) -> None:
    """Two real engines; the answer that the other one is giving is finished before all ends."""
    engine = Engine(tmp_path / "engine.log", ENGINE_MODEL="demo", ENGINE_REPLICAS="2")
    try:
        engine.wait_until_healthy("all 2 engines serve after")
        first, second = engine.status()["engines"]
        assert (first["port"], second["port"]) == (engine.port, engine.status_port + 1)
        assert first["since"] <= second["started_at"], "one after the other"
        assert f"--max-num-seqs {first['sequences']} " in engine.text
        children = Path(f"/proc/{engine.process.pid}/task/{engine.process.pid}/children").read_text().split()
        groups = {int(child): processes_of_group(int(child)) for child in children}
        cores = [
            (group, pid) for group, found in groups.items() for pid, title in found.items() if "EngineCore" in title
        ]
        assert len(cores) == 2
        body = {"model": "ernie-demo", "prompt": "1", "max_tokens": 400, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{engine.url}/v1/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            os.kill(cores[1][1], signal.SIGKILL)
            events = [line for line in lines if line]
        assert events[-1] == "data: [DONE]"
        assert engine.process.wait(60) == 8
        assert "launcher: engine 2 ended by itself" in engine.text
        assert not any(processes_of_group(group) for group, _ in cores)
        assert set(engine.last_words()["log"]) == {"engine 1", "engine 2"}
        assert "engine 2: (EngineCore" in engine.text
    finally:
        engine.end()
