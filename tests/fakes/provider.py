"""A real OpenID Connect provider on loopback, with people and clients of the tests' own."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.conftest import clean_environment, free_ports

START_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Client:
    """What a page is to the provider: the lines of its CHAT_UI_OAUTH_FILE, by Chainlit's names."""

    id: str
    secret: str
    provider: str

    def lines(self, name: str = "example", secret: str = "") -> str:
        """Return the lines for the generic provider; `secret` in the place of the right one."""
        values = {
            "NAME": name,
            "CLIENT_ID": self.id,
            "CLIENT_SECRET": secret or self.secret,
            "AUTH_URL": f"{self.provider}/oauth2/authorize",
            "TOKEN_URL": f"{self.provider}/oauth2/token",
            "USER_INFO_URL": f"{self.provider}/userinfo",
            "SCOPES": "openid email profile",
        }
        return "".join(f"OAUTH_GENERIC_{key}={value}\n" for key, value in values.items())


@dataclass(frozen=True)
class Provider:
    """The provider's address, and what its administrator does there."""

    url: str

    def register(self, *callbacks: str) -> Client:
        """Register a page by the addresses that people come back to."""
        body = {"redirect_uris": callbacks, "token_endpoint_auth_method": "client_secret_post"}
        told = httpx.post(f"{self.url}/oauth2/clients", json=body, trust_env=False).raise_for_status().json()
        return Client(told["client_id"], told["client_secret"], self.url)

    def add_person(self, subject: str, **claims: object) -> None:
        """Let the provider know somebody, and what it tells of them."""
        httpx.put(f"{self.url}/users/{subject}", json=claims, trust_env=False).raise_for_status()


@contextlib.contextmanager
def running_provider(folder: Path) -> Iterator[Provider]:
    """Run the provider, which knows registered clients alone."""
    port = free_ports(["provider"])["provider"]
    command = [sys.executable, "-m", "oidc_provider_mock", "--host", "127.0.0.1", "--port", str(port)]
    with (
        (folder / "provider.log").open("w") as log,
        subprocess.Popen(
            [*command, "--require-registration", "true"], env=clean_environment(), stdout=log, stderr=log
        ) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + START_TIMEOUT_SECONDS
            while not _answers(url):
                assert process.poll() is None, (folder / "provider.log").read_text()
                assert time.monotonic() < deadline, (folder / "provider.log").read_text()
                time.sleep(0.05)
            yield Provider(url)
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/.well-known/openid-configuration", trust_env=False).is_success
    except httpx.TransportError:
        return False
