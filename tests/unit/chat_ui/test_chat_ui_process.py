"""The real process: how it starts, refuses to start, answers its health check and ends."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import clean_environment, free_ports

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "chat_ui"]
START_TIMEOUT_SECONDS = 30


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=clean_environment(**settings),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(("name", "value"), [("CHAT_UI_PORT", "x"), ("CHAT_UI_HOTS", "127.0.0.1")])
def test_wrong_setting_stops_the_start_in_one_line(name: str, value: str) -> None:
    result = run(**{name: value})
    assert result.returncode == 2
    assert result.stderr.startswith(f"chat-ui: {name}")
    assert result.stderr.count("\n") == 1


def test_taken_port_stops_the_start_with_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run(CHAT_UI_PORT=str(taken.getsockname()[1]), TMPDIR=str(tmp_path))
    assert result.returncode == 1
    assert list(tmp_path.iterdir()) == []
    assert "CHAT_UI_PORT=" in result.stderr


def test_sigterm_in_the_middle_of_the_start_ends_it_without_a_trace(tmp_path: Path) -> None:
    port = str(free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"])
    environment = clean_environment(CHAT_UI_PORT=port, TMPDIR=str(tmp_path))
    with subprocess.Popen(COMMAND, env=environment) as process:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not list(tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    assert list(tmp_path.iterdir()) == []


def test_health_fails_where_nothing_listens() -> None:
    result = run("health", CHAT_UI_PORT=str(free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"]))
    assert result.returncode == 1
    assert "no health answer" in result.stderr


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    folder = tmp_path_factory.mktemp("chat-ui")
    port = str(free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"])
    environment = clean_environment(
        CHAT_UI_PORT=port,
        CHAT_UI_HISTORY_URL="off",
        TMPDIR=str(folder),
        DATABASE_URL="postgresql://127.0.0.1:9/x",
    )
    with subprocess.Popen(
        COMMAND, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                if "chat page on" in line:
                    break
            yield process, f"http://127.0.0.1:{port}", folder
        finally:
            process.kill()


def test_page_names_no_foreign_host(running: tuple[subprocess.Popen[str], str, Path]) -> None:
    html = httpx.get(running[1]).text
    assert "<title>ERNIE Chat</title>" in html
    assert "://" not in html
    assert "/public/katex/katex.min.css" in html


@pytest.mark.parametrize(("language", "greeting"), [("zh-CN", "写一首短诗"), ("en-US", "Write a short poem")])
def test_starters_speak_the_persons_language(
    running: tuple[subprocess.Popen[str], str, Path], language: str, greeting: str
) -> None:
    settings = httpx.get(f"{running[1]}/project/settings", params={"language": language}).json()
    assert settings["starters"][0]["label"] == greeting
    assert settings["dataPersistence"] is False
    assert settings["features"]["spontaneous_file_upload"]["enabled"] is False
    assert settings["features"]["unsafe_allow_html"] is False


def test_health_succeeds_and_sigterm_ends_it_without_a_trace(
    running: tuple[subprocess.Popen[str], str, Path],
) -> None:
    process, url, folder = running
    assert run("health", CHAT_UI_PORT=url.rpartition(":")[2]).returncode == 0
    assert [path.name[:8] for path in folder.iterdir()] == ["chat-ui-"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    assert list(folder.iterdir()) == []
