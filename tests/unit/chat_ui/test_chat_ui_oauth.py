"""The real page and a real OpenID Connect provider: who comes back as whom, and what is said to who does not."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.conftest import clean_environment, free_ports
from tests.fakes.provider import Provider, running_provider
from tests.unit.chat_ui.test_chat_ui_login import COMMAND, browser, serving, who

pytestmark = pytest.mark.process

NAME = "example"


@dataclass
class Site:
    """A page that lets people in by a provider."""

    url: str
    provider: Provider
    log: Path

    def begin(self, client: httpx.Client) -> str:
        """Choose the provider on the login page; gives the provider's address that the browser is sent to."""
        sent = client.get(f"/auth/oauth/{NAME}")
        assert sent.is_redirect, sent.text
        return sent.headers["location"]

    def agree(self, address: str, **form: str) -> str:
        """Answer the provider's question; gives the page's address that it sends the browser back to."""
        back = httpx.post(address, data=form, trust_env=False)
        assert back.is_redirect, back.text
        return str(back.headers["location"])

    def log_in(self, client: httpx.Client, person: str) -> str:
        """Log in as a person of the provider; gives where the page leads to."""
        return str(client.get(self.agree(self.begin(client), sub=person)).headers["location"])


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as provider:
        provider.add_person("1", email="alice@example.org", email_verified=True)
        provider.add_person("2", email="mallory@example.org", email_verified=False)
        provider.add_person("3", email="eve@example.com", email_verified=True)
        provider.add_person("4", name="Nobody")
        yield provider


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("oauth")
    port = free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"]
    client = provider.register(f"http://127.0.0.1:{port}/auth/oauth/{NAME}/callback")
    (folder / "oauth").write_text(client.lines(NAME))
    settings = {
        "CHAT_UI_PORT": str(port),
        "CHAT_UI_LOGIN": "oauth",
        "CHAT_UI_OAUTH_FILE": str(folder / "oauth"),
        "CHAT_UI_OAUTH_ALLOWED": "@example.org",
    }
    with serving(folder, **settings) as url:
        yield Site(url, provider, folder / "log")
    assert client.secret not in (folder / "log").read_text()


def test_whom_the_provider_vouches_for_is_in_and_out_again(site: Site) -> None:
    with browser(site.url) as client:
        assert who(client) == ""
        assert site.log_in(client, "1") == "/"
        assert who(client) == f"{NAME}:alice@example.org"
        [cookie] = [cookie for cookie in client.cookies.jar if cookie.name == "access_token"]
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert "oauth_state" not in client.cookies
        assert client.post("/logout").is_success
        assert who(client) == ""


@pytest.mark.parametrize(
    ("person", "code", "logged"),
    [
        ("2", "oauthNotAllowed", "the provider has not verified the address 'mallory@example.org'"),
        ("3", "oauthNotAllowed", "CHAT_UI_OAUTH_ALLOWED does not name 'eve@example.com'"),
        ("4", "oauthProvider", "its answer names nobody"),
    ],
)
def test_who_may_not_come_in_learns_why(site: Site, person: str, code: str, logged: str) -> None:
    with browser(site.url) as client:
        assert site.log_in(client, person) == f"/login?error={code}"
        assert who(client) == ""
    assert f"login by {NAME!r} failed: {logged}" in site.log.read_text()


def test_a_refused_consent_is_not_taken_for_a_fault(site: Site) -> None:
    with browser(site.url) as client:
        back = site.agree(site.begin(client), action="deny")
        assert client.get(back).headers["location"] == "/login?error=oauthDenied"
        assert who(client) == ""


def test_a_code_is_taken_from_the_browser_that_asked_for_it_alone(site: Site) -> None:
    with browser(site.url) as one, browser(site.url) as other:
        back = site.agree(site.begin(one), sub="1")
        # Somebody who lures another browser to it, even one that has begun a login, logs nobody in as themselves.
        for _ in range(2):
            assert other.get(back).headers["location"] == "/login?error=oauthExpired"
            assert who(other) == ""
            site.begin(other)
        altered = re.sub(r"state=[^&]*", "state=x", back)
        assert one.get(altered).headers["location"] == "/login?error=oauthExpired"
        assert who(one) == ""


def test_other_errors_and_odd_answers_are_the_providers(site: Site) -> None:
    with browser(site.url) as client:
        callback = f"/auth/oauth/{NAME}/callback"
        found = client.get(callback, params={"error": "server_error", "error_description": "down\nX: forged line"})
        assert found.headers["location"] == "/login?error=oauthProvider"
        state = parse_qs(urlsplit(site.begin(client)).query)["state"][0]
        found = client.get(callback, params={"code": "guessed", "state": state})
        assert found.headers["location"] == "/login?error=oauthProvider"
        for other in ("github", "unknown"):
            found = client.get(f"/auth/oauth/{other}/callback", params={"code": "guessed", "state": state})
            assert found.headers["location"] == "/login?error=oauthProvider"
    log = site.log.read_text()
    assert "\nX: forged line" not in log
    assert "login by 'github' failed: it is not set up in CHAT_UI_OAUTH_FILE" in log
    assert re.search(r"login by 'example' failed: http://\S+/oauth2/token answers 400, 'invalid_grant'", log)


@pytest.mark.parametrize("fault", ["wrong secret", "away"])
def test_a_provider_that_cannot_be_used_is_told_apart_from_a_refusal(
    tmp_path: Path, provider: Provider, fault: str
) -> None:
    port = free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"]
    registered = provider.register(f"http://127.0.0.1:{port}/auth/oauth/{NAME}/callback")
    lines = registered.lines(NAME, secret="no-secret-of-mine" if fault == "wrong secret" else "")
    if fault == "away":
        nowhere = f"http://127.0.0.1:{free_ports(['nowhere'])['nowhere']}"
        lines = lines.replace(f"TOKEN_URL={provider.url}", f"TOKEN_URL={nowhere}")
    (tmp_path / "oauth").write_text(lines)
    settings = {
        "CHAT_UI_PORT": str(port),
        "CHAT_UI_LOGIN": "oauth",
        "CHAT_UI_OAUTH_FILE": str(tmp_path / "oauth"),
    }
    with serving(tmp_path, **settings) as url, browser(url) as client:
        site = Site(url, provider, tmp_path / "log")
        assert site.log_in(client, "1") == "/login?error=oauthProvider"
        assert who(client) == ""
        log = site.log.read_text()
    logged = {"wrong secret": "answers 401, 'invalid_client'", "away": "no answer: "}
    assert logged[fault] in log
    assert "no-secret-of-mine" not in log


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "sets up no provider"),
        ("OAUTH_GITHUB_CLIENT_ID=id\n", "has no line OAUTH_GITHUB_CLIENT_SECRET=..., which github needs"),
        (
            "OAUTH_GITHUB_CLIENT_ID=id\nOAUTH_GITHUB_CLIENT_SECRET=hush\nOAUTH_GENERIC_CLIENT_ID=id\n",
            "has no line OAUTH_GENERIC_CLIENT_SECRET=..., which generic needs",
        ),
    ],
)
def test_a_provider_set_up_by_half_stops_the_start_in_one_line(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "oauth").write_text(lines)
    environment = clean_environment(
        CHAT_UI_PORT=str(free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"]),
        CHAT_UI_LOGIN="oauth",
        CHAT_UI_OAUTH_FILE=str(tmp_path / "oauth"),
        TMPDIR=str(tmp_path),
    )
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"CHAT_UI_OAUTH_FILE {said}" in done.stderr
    assert "hush" not in done.stderr
