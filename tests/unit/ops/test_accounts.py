"""`make account` as a person types it, at a terminal, and the running page that lets in who was made so."""

import contextlib
import os
import pty
import select
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment
from tests.unit.chat_ui.test_chat_ui_login import browser, log_in, serving, who

pytestmark = pytest.mark.process

TIMEOUT_SECONDS = 60
CTRL_C = "\x03"
FIRST, SECOND = "correct horse", "正确的密码 и 8"


class Terminal:
    """What a person sees of a command, and types to it."""

    def __init__(self, screen: int, process: subprocess.Popen[bytes]) -> None:
        self._screen = screen
        self._process = process
        self.seen = ""

    def wait_for(self, text: str, times: int = 1) -> None:
        """Read until the text stands there so many times."""
        while self.seen.count(text) < times:
            assert self._read(), f"{text!r} is not in {self.seen!r}"

    def type(self, *lines: str) -> None:
        """Type lines, each with Enter."""
        for line in lines:
            os.write(self._screen, f"{line}\n".encode())

    def press(self, key: str) -> None:
        """Press one key."""
        os.write(self._screen, key.encode())

    def end(self) -> int:
        """Read the rest and return the exit code."""
        while self._read():
            pass
        return self._process.wait(TIMEOUT_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], TIMEOUT_SECONDS)
        assert ready, f"nothing more than {self.seen!r}"
        # Linux's way to say that nobody holds the other side any more.
        with contextlib.suppress(OSError):
            read = os.read(self._screen, 4096)
            self.seen += read.decode()
            return bool(read)
        return False


@contextlib.contextmanager
def make_account(file: Path, name: str) -> Iterator[Terminal]:
    """Run `make account` at a terminal of its own."""
    screen, keyboard = pty.openpty()
    command = ["setsid", "--ctty", "make", "--silent", "account", f"NAME={name}"]
    environment = clean_environment(CHAT_UI_LOGIN="password", CHAT_UI_ACCOUNTS_FILE=str(file), LC_ALL="C.UTF-8")
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=keyboard, stdout=keyboard, stderr=keyboard
    ) as process:
        os.close(keyboard)
        try:
            yield Terminal(screen, process)
        finally:
            if process.poll() is None:
                process.terminate()
            os.close(screen)


def make(file: Path, name: str, password: str) -> str:
    """Make an account, or change its password; gives what was on the screen."""
    with make_account(file, name) as terminal:
        terminal.wait_for(f"Password of {name}: ")
        terminal.type(password)
        terminal.wait_for("Once more: ")
        terminal.type(password)
        assert terminal.end() == 0, terminal.seen
    assert password not in terminal.seen
    return terminal.seen


def test_an_account_made_by_hand_opens_the_running_page_and_its_new_password_does(tmp_path: Path) -> None:
    file = tmp_path / "accounts" / "people"
    assert f"bob can log in; {file} has its hash." in make(file, "bob", "another one")
    with serving(tmp_path, CHAT_UI_LOGIN="password", CHAT_UI_ACCOUNTS_FILE=str(file)) as url, browser(url) as client:
        assert log_in(client, "alice", FIRST).status_code == 401
        assert "alice can log in" in make(file, "alice", FIRST)
        assert log_in(client, "alice", FIRST).is_success
        assert who(client) == "account:alice"
        assert "alice has a new password" in make(file, "alice", SECOND)
        # Whoever has the old one is out at once.
        assert who(client) == ""
        assert log_in(client, "alice", FIRST).status_code == 401
        assert log_in(client, "alice", SECOND).is_success
        assert log_in(client, "bob", "another one").is_success
    text = file.read_text()
    assert [text.count(f"\n{name} scrypt:") for name in ("alice", "bob")] == [1, 1]
    # As the keys' file: the container's user is another one, and nobody but the owner writes.
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in file.parent.iterdir()] == ["people"]


def test_a_slip_is_asked_again_and_a_short_password_refused(tmp_path: Path) -> None:
    file = tmp_path / "people"
    with make_account(file, "alice") as terminal:
        terminal.wait_for("Password of alice: ")
        terminal.type(FIRST)
        terminal.wait_for("Once more: ")
        terminal.type("correct house")
        terminal.wait_for("do not match")
        terminal.wait_for("Password of alice: ", times=2)
        terminal.type("short")
        terminal.wait_for("Once more: ", times=2)
        terminal.type("short")
        assert terminal.end() != 0
    assert "error: The password needs at least 8 characters." in terminal.seen
    assert "Traceback" not in terminal.seen
    assert not file.exists()


@pytest.mark.parametrize("when", ["Password of alice: ", "Once more: "])
def test_ctrl_c_changes_nothing(tmp_path: Path, when: str) -> None:
    file = tmp_path / "people"
    make(file, "alice", FIRST)
    before = file.read_bytes()
    with make_account(file, "alice") as terminal:
        terminal.wait_for("Password of alice: ")
        if when == "Once more: ":
            terminal.type(SECOND)
            terminal.wait_for(when)
        terminal.press(CTRL_C)
        assert terminal.end() != 0
    assert "Interrupted." in terminal.seen
    assert "Traceback" not in terminal.seen
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["people"]
