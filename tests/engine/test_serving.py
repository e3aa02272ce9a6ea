"""A real vLLM under the launcher: it answers, it ends when asked, and nothing of it outlives the launcher."""

import os
import signal
import time

import httpx
import pytest

from .conftest import Engine

pytestmark = pytest.mark.engine


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
    assert "launcher: vLLM ended by itself" in engine.text
    assert engine.nothing_left(0)


def test_nothing_outlives_a_killed_launcher(engine: Engine) -> None:
    engine.process.kill()
    assert engine.nothing_left(15)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{engine.url}/health", timeout=5)
