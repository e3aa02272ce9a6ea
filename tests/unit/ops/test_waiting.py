"""What `make up` shows while the engine starts: its stage, from where each way can ask for it."""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import DockerException
from rich.console import Console

from ops.containers import STATUS_COMMAND, Containers
from ops.errors import StackError
from ops.processes import Processes
from ops.settings import Settings
from ops.stage import Stage, read_seconds_left, read_stage
from ops.waiting import Waiting
from ops.way import SERVICES, ServiceState

STATUS = {"version": 1, "stage": "downloading", "progress": 0.43, "detail": "310 of 721 MB, 34 s left", "engines": []}


def settings(**environment: str) -> Settings:
    return Settings(Path("/r"), Path("/r/.run"), "native", 1, environment)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is looked at of a way; its `services` and `now` are the test's."""
    monkeypatch.setattr("ops.waiting.ASK_EVERY_SECONDS", 0)
    way = SimpleNamespace(services=dict.fromkeys(SERVICES, ServiceState("running")), now=None)
    way.states = lambda: way.services
    way.stage = lambda: way.now
    way.last_words = lambda service: [f"{service} is out of memory"]
    return way


def shown(way: Any, *stages: Stage | None, terminal: bool = False) -> str:
    """Return what is printed while these stages follow each other."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=120, soft_wrap=True, color_system=None)
    with Waiting(way, console) as waiting:
        for stage in stages:
            way.now = stage
            waiting.report("No engine is ready.")
            waiting._progress.refresh()
    return output.getvalue()


def test_each_change_is_one_line(way: Any) -> None:
    text = shown(
        way,
        None,
        Stage("downloading", 0.1, "72 of 721 MB"),
        Stage("downloading", 0.9, "650 of 721 MB"),
        Stage("compiling"),
        Stage("compiling"),
        Stage("serving"),
    )
    lines = [line.split("s  ", 1)[1] for line in text.splitlines()]
    assert lines[:4] == [f"{service}: running" for service in SERVICES]
    assert lines[4:] == ["engine: downloading, 10 % (72 of 721 MB)", "engine: compiling", "engine: serving"]


def test_a_long_stage_is_told_again_with_its_progress(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.waiting.REPORT_EVERY_SECONDS", 0)
    text = shown(way, Stage("downloading", 0.1), Stage("downloading", 0.9), None)
    assert "engine: downloading, 90 %" in text
    assert text.splitlines()[-1].endswith("No engine is ready.")


def test_a_terminal_shows_a_bar_where_there_is_progress(way: Any) -> None:
    stages = [Stage("downloading", 0.5, "34 s left"), Stage("compiling", seconds_left=20.4), Stage("serving")]
    text = shown(way, *stages, terminal=True)
    downloading, compiling, serving = (
        [line for line in text.splitlines() if words in line][-1] for words in ("downloading", "compiling", "No engine")
    )
    assert "━" in downloading
    assert "34 s left" in downloading
    assert "━" not in compiling
    assert "about 20 s left" in compiling
    assert "━" not in serving


def test_a_service_that_gave_up_ends_the_wait_with_its_last_words(way: Any) -> None:
    way.services["vllm"] = ServiceState("ended with 2", failed=True)
    with pytest.raises(StackError, match=r"vllm cannot start.*\n.*out of memory"):
        shown(way, None)


def test_stage_is_read_from_a_status() -> None:
    stage = read_stage(json.dumps(STATUS))
    assert stage == Stage("downloading", 0.43, "310 of 721 MB, 34 s left")
    assert stage.is_start
    engines = [{"stage": "serving"}, {"stage": "compiling"}, {"stage": "waiting"}]
    several = read_stage(
        json.dumps({**STATUS, "stage": "waiting", "progress": None, "detail": None, "engines": engines})
    )
    assert several is not None
    assert several.words == "waiting (1 of 3 engines serve)"


@pytest.mark.parametrize("text", ["", "[]", "null", "5", '{"stage": 5, "engines": []}', '{"stage": "x"}', b"\xff"])
def test_what_is_no_status_is_no_stage(text: str | bytes) -> None:
    assert read_stage(text) is None


@pytest.mark.parametrize(
    ("report", "left"),
    [(None, None), ("", None), ("{}", None), ('{"seconds_left": null}', None), ('{"seconds_left": 20.5}', 20.5)],
)
def test_time_left_is_read_from_the_gateways_report(report: str | None, left: float | None) -> None:
    assert read_seconds_left(report) == left


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """Launcher and gateway in one, as far as they are asked."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_status = self.path == "/status"
            body = json.dumps(STATUS if is_status else {"error": {}, "seconds_left": 12.5}).encode()
            self.send_response(200 if is_status else 503)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_processes_ask_launcher_and_gateway(server: ThreadingHTTPServer) -> None:
    port = str(server.server_port)
    stage = Processes(settings(ENGINE_STATUS_PORT=port, GATEWAY_PORT=port)).stage()
    assert stage is not None
    assert stage.words == "downloading, 43 % (310 of 721 MB, 34 s left, about 12 s left)"
    assert Processes(settings(ENGINE_STATUS_PORT="1")).stage() is None
    assert Processes(settings(ENGINE_STATUS_PORT="0")).stage() is None


@pytest.mark.parametrize(
    ("status", "code", "output", "asked"),
    [
        ("running", 0, json.dumps(STATUS).encode(), True),
        ("running", 1, b"", False),
        ("created", 0, json.dumps(STATUS).encode(), False),
    ],
)
def test_containers_ask_inside_the_engines(
    monkeypatch: pytest.MonkeyPatch, status: str, code: int, output: bytes, asked: bool
) -> None:
    def exec_run(command: list[str], **_: Any) -> Any:
        assert command == STATUS_COMMAND
        return code, output

    labels = {"com.docker.compose.service": "vllm"}
    container = SimpleNamespace(labels=labels, status=status, exec_run=exec_run)
    way = Containers(settings(), gpu=False)
    monkeypatch.setattr(way, "_containers", lambda: [SimpleNamespace(labels={}, status="running"), container])
    assert (way.stage() is not None) is asked


def test_a_container_that_is_just_gone_has_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Any:
        raise DockerException("gone")

    way = Containers(settings(), gpu=False)
    monkeypatch.setattr(way, "_containers", gone)
    assert way.stage() is None
