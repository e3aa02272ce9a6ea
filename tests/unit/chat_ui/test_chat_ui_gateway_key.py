"""The key: missed once in the log, found again by itself, never shown."""

import logging
import threading
import time
from pathlib import Path

import pytest
from chat_ui.gateway_key import GatewayKey

KEY = "Z" * 43


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="chat_ui")
    return caplog


def test_without_a_file_there_is_no_key_and_nothing_to_say(log: pytest.LogCaptureFixture) -> None:
    key = GatewayKey("")
    key.wait(60)
    assert (key.headers(), log.messages) == ({}, [])


def test_a_key_that_comes_late_is_waited_for(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    maker = threading.Timer(0.2, lambda: file.write_text(KEY + "\n"))
    maker.start()
    key = GatewayKey(str(file))
    key.wait(20)
    maker.join()
    assert (key.headers(), log.messages) == ({"authorization": f"Bearer {KEY}"}, [])


@pytest.mark.parametrize("content", [None, b"", b"\n", b"short", b"\xff" * 43, b"two words" * 9])
def test_what_is_no_key_is_missed_once(tmp_path: Path, log: pytest.LogCaptureFixture, content: bytes | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    key = GatewayKey(str(file))
    started = time.monotonic()
    key.wait(0.05)
    assert time.monotonic() - started < 5
    assert [key.headers() for _ in range(3)] == [{}] * 3
    assert [record.levelname for record in log.records] == ["WARNING"]
    assert "CHAT_UI_GATEWAY_KEY_FILE" in log.text


def test_a_key_that_goes_and_comes_back_is_taken_as_it_is(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    key = GatewayKey(str(file))
    assert key.headers() == {"authorization": f"Bearer {KEY}"}
    file.unlink()
    assert key.headers() == {}
    file.write_text("N" * 43)
    assert key.headers() == {"authorization": "Bearer " + "N" * 43}
    assert [record.levelname for record in log.records] == ["WARNING", "INFO"]
    assert KEY not in log.text
    assert "N" * 43 not in log.text
