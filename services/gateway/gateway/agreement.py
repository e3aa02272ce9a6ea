"""Whether nginx and the gateway mean the same client: tried once, by a request to ourselves through nginx.

Settings that do not fit each other fail in silence. Without nginx among the trusted proxies everybody is one client; a
proxy that passes on what clients claim lets anybody be anybody.
"""

import asyncio
import hmac
import ipaddress
import logging
import secrets
import ssl
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson
from starlette.types import Scope

from gateway.metrics import Metrics

ASK_SECONDS = 3.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
# Any path that nginx passes on would do; this one counts against nobody.
PATH = "/v1/models"
HEADER = "X-Agreement-Check"
# An address for examples (RFC 5737): nobody has it, and who is counted by it was believed.
CLAIMED = "192.0.2.1"
# On one host nginx and its clients have the same address; another of the loopback network tells them apart.
ON_LOOPBACK = ("127.0.0.2", 0)
NOTE = (
    "nginx and the gateway take one client for another, so limits count the wrong ones: the gateway's log says under "
    "edge_disagrees how to mend it."
)
_ANSWER_BYTES = 1024
_log = logging.getLogger("gateway.agreement")


class Paper(Protocol):
    """A few bytes that whoever has it in common can put and get."""

    def put(self, content: bytes) -> None:
        """Replace what is there."""

    def get(self) -> bytes:
        """Return what was put last; empty if nothing was."""


class Slip:
    """Paper of one process."""

    def __init__(self) -> None:
        self._content = b""

    def put(self, content: bytes) -> None:
        """Replace what is there."""
        self._content = content

    def get(self) -> bytes:
        """Return what was put last."""
        return self._content


class Agreement:
    """Asks until both have agreed once; an empty address of nginx means never. It holds nothing up.

    `client_of` tells what a request is counted by, `name_in` what a client of an address would be. One process asks,
    and any of them may be the one that is asked: the token and the finding are on `papers` that they have in common.
    """

    def __init__(
        self,
        url: str,
        client_of: Callable[[Scope], str],
        name_in: Callable[[str], str | None],
        metrics: Metrics,
        *,
        papers: tuple[Paper, Paper] | None = None,
    ) -> None:
        self._url = url
        self._client_of = client_of
        self._name_in = name_in
        self._token, self._finding = papers or (Slip(), Slip())
        self._disagreement = metrics.edge_disagreement
        self._found = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def notes(self) -> list[str]:
        """What an operator should know of it, without addresses: anybody may read it."""
        return [NOTE] if self._disagreement.total() else []

    def start(self) -> None:
        """Begin to ask."""
        if self._url:
            self._task = asyncio.create_task(self._ask_until_agreed())

    async def stop(self) -> None:
        """Ask no more."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look_at(self, scope: Scope) -> None:
        """Take note of the request that is ours; its token is good for one, and no stranger's answer differs."""
        token = self._token.get()
        if not token:
            return
        headers = dict(scope["headers"])
        if hmac.compare_digest(headers.get(HEADER.lower().encode(), b""), token):
            self._token.put(b"")
            seen_as = self._name_in(headers.get(b"x-real-ip", b"").decode("latin-1"))
            self._finding.put(orjson.dumps([self._client_of(scope), seen_as]))

    async def _ask_until_agreed(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not await self._agreed():
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _agreed(self) -> bool:
        token = self._expect()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                address = await self._ask(token)
        except (OSError, TimeoutError) as error:
            self._say(logging.INFO, "edge_unreached", reason=str(error) or f"no answer in {ASK_SECONDS:g} s")
            return False
        finally:
            self._token.put(b"")
        counted_as, seen_as = orjson.loads(self._finding.get() or b"[null, null]")
        if counted_as is None:
            self._say(logging.INFO, "edge_unreached", reason="something answered, and did not ask this gateway")
        elif counted_as in {self._name_in(address), seen_as}:
            self._say(logging.INFO, "edge_agrees", address=address)
            return True
        else:
            cure = _cure(counted_as)
            self._say(logging.WARNING, "edge_disagrees", address=address, counted_as=counted_as, cure=cure)
        return False

    def _expect(self) -> str:
        token = secrets.token_hex()
        self._finding.put(b"")
        self._token.put(token.encode("ascii"))
        return token

    async def _ask(self, token: str) -> str:
        """Send the request and wait for its answer; return the address that it was sent from."""
        parts = urlsplit(self._url)
        local = ON_LOOPBACK if _is_loopback(parts.hostname) else None
        encrypted = parts.scheme == "https"
        reader, writer = await asyncio.open_connection(
            parts.hostname,
            parts.port or (443 if encrypted else 80),
            local_addr=local,
            ssl=_unchecked() if encrypted else None,
        )
        try:
            writer.write(
                f"GET {parts.path}{PATH} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
                f"{HEADER}: {token}\r\n"
                f"X-Forwarded-For: {CLAIMED}\r\nForwarded: for={CLAIMED}\r\n\r\n".encode("ascii")
            )
            await reader.read(_ANSWER_BYTES)
            return str(writer.get_extra_info("sockname")[0])
        finally:
            writer.close()

    def _say(self, level: int, finding: str, **fields: Any) -> None:
        """Log a finding when it is another than the last."""
        if finding != self._found:
            self._found = finding
            self._disagreement.set(finding == "edge_disagrees")
            _log.log(level, finding, extra={"fields": {"edge": self._url, **fields}})


def _unchecked() -> ssl.SSLContext:
    """Return a context that takes any certificate: nginx's names it as clients do, not as the gateway does here.

    What goes over the connection is a token of our own, good for one request and worth nothing to a listener.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _cure(counted_as: str) -> str:
    if counted_as == CLAIMED:
        return (
            "Anybody can pass for anybody: let the proxy overwrite X-Forwarded-For with the address it sees, as this "
            "project's nginx does."
        )
    return (
        f"Many clients are counted as one: add {counted_as}, if that is nginx, to GATEWAY_TRUSTED_PROXIES, and let "
        "nginx set X-Forwarded-For."
    )


def _is_loopback(host: str | None) -> bool:
    try:
        return ipaddress.IPv4Address(host or "").is_loopback
    except ValueError:
        return False
