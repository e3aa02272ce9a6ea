"""The real process before its login: who comes in, who stays out, and what their cookies look like."""
# ruff: noqa: S105

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ops.accounts import set_password
from tests.conftest import clean_environment, free_ports

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "chat_ui"]
START_TIMEOUT_SECONDS = 180
PAGE = {"accept": "text/html"}
PASSWORD = "correct horse"
MODEL_LIST = {"pagination": {"first": 10}, "filter": {}}


@contextlib.contextmanager
def serving(folder: Path, **settings: str) -> Iterator[str]:
    """Run the page with these settings; gives its address."""
    port = settings.setdefault("CHAT_UI_PORT", str(free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"]))
    log = folder / "log"
    environment = clean_environment(CHAT_UI_DATA_DIR=str(folder / "data"), TMPDIR=str(folder), **settings)
    with (
        log.open("w") as output,
        subprocess.Popen(COMMAND, env=environment, cwd="/", stdout=output, stderr=output) as process,
    ):
        try:
            deadline = time.monotonic() + START_TIMEOUT_SECONDS
            while "chat page on" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
    assert "Traceback" not in log.read_text(), log.read_text()
    assert PASSWORD not in log.read_text()
    secret = folder / "data/cookie-secret"
    assert secret.read_text().strip() not in log.read_text()
    assert [path.stat().st_mode & 0o077 for path in (secret, folder / "data/history.sqlite")] == [0, 0]


def browser(url: str, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=False)


def who(client: httpx.Client) -> str:
    """Return whom the page takes this browser for; empty for nobody."""
    answer = client.get("/user")
    return str(answer.json()["identifier"]) if answer.is_success else ""


def log_in(client: httpx.Client, name: str, password: str) -> httpx.Response:
    return client.post("/login", data={"username": name, "password": password})


@pytest.fixture(scope="module")
def accounts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("accounts") / "people"
    set_password(file, "alice", PASSWORD)
    set_password(file, "bob", "another one")
    return file


@pytest.fixture(scope="module")
def with_accounts(tmp_path_factory: pytest.TempPathFactory, accounts_file: Path) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("with-accounts")
    with serving(folder, CHAT_UI_LOGIN="password", CHAT_UI_ACCOUNTS_FILE=str(accounts_file)) as url:
        yield url


@pytest.fixture(scope="module")
def with_guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("with-guests")) as url:
        yield url


def test_a_guest_is_the_same_at_every_visit_and_no_other(with_guests: str) -> None:
    with browser(with_guests) as one, browser(with_guests) as other:
        for client in (one, other):
            client.get("/", headers=PAGE)
        assert who(one) == who(one)
        assert who(one).startswith("guest:")
        assert who(one) != who(other)
        assert one.post("/project/threads", json=MODEL_LIST).json()["data"] == []


def test_only_the_right_password_opens_the_door_and_a_wrong_name_looks_like_a_wrong_password(
    with_accounts: str,
) -> None:
    with browser(with_accounts) as client:
        assert client.get("/", headers=PAGE).is_success
        assert who(client) == ""
        assert client.post("/project/threads", json=MODEL_LIST).status_code == 401
        refused = [log_in(client, *pair) for pair in (("alice", "wrong"), ("mallory", PASSWORD), ("alice", ""))]
        assert [answer.status_code for answer in refused[:2]] == [401, 401]
        assert refused[0].content == refused[1].content
        assert not refused[2].is_success
        assert log_in(client, "alice", PASSWORD).is_success
        assert who(client) == "account:alice"
        assert client.post("/logout").is_success
        assert who(client) == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"CHAT_UI_LOGIN": "password"}, "CHAT_UI_ACCOUNTS_FILE"),
        ({"CHAT_UI_LOGIN": "password", "CHAT_UI_ACCOUNTS_FILE": "/nowhere/people"}, "CHAT_UI_ACCOUNTS_FILE=/nowhere"),
        ({"CHAT_UI_LOGIN": "header"}, "CHAT_UI_LOGIN_PROXIES"),
        ({"CHAT_UI_LOGIN": "oauth"}, "CHAT_UI_OAUTH_FILE"),
        ({"CHAT_UI_LOGIN": "ldap"}, "CHAT_UI_LOGIN="),
        ({"CHAT_UI_HISTORY_URL": "mysql://chat:hush@db/chat"}, "CHAT_UI_HISTORY_URL cannot be used"),
        ({"CHAT_UI_SECRET_FILE": "/dev/null"}, "CHAT_UI_SECRET_FILE=/dev/null"),
    ],
)
def test_a_login_that_cannot_work_stops_the_start_in_one_line(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    port = str(free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"])
    environment = clean_environment(CHAT_UI_PORT=port, TMPDIR=str(tmp_path), **settings)
    result = subprocess.run(
        COMMAND, env=environment, capture_output=True, text=True, timeout=START_TIMEOUT_SECONDS, check=False
    )
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert "hush" not in result.stderr
