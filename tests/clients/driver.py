"""What the tests ask of every client, and what each client says came of it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tests.fakes.gateway import RunningGateway


@dataclass(frozen=True)
class Ask:
    """One request, as a user of a client would make it."""

    stream: bool = False
    usage: bool = False
    legacy: bool = False
    model: str = "ernie-demo"
    content: str = "你好"
    extra: dict[str, Any] = field(default_factory=dict)
    retries: int = 0
    timeout_seconds: float = 20
    # Leave the stream after so many texts by a plain `break`, and close it as well if it `closes`.
    stop_after: int | None = None
    closes: bool = False


@dataclass(frozen=True)
class Failure:
    """The error that a client raised; `kind` is its own class's name."""

    kind: str
    message: str
    status: int | None = None
    code: str | None = None
    param: str | None = None
    request_id: str | None = None


@dataclass
class Told:
    """What the user of the client was told: the texts as they came, the usage, and the error if one was raised."""

    texts: list[str] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    failure: Failure | None = None

    @property
    def text(self) -> str:
        """All texts, joined."""
        return "".join(self.texts)


def url_of(gateway: RunningGateway) -> str:
    """Return the address that clients are given."""
    return f"http://127.0.0.1:{gateway.port}"


class Client(Protocol):
    """A client; cancelling `ask` is the user's cancellation."""

    name: str

    async def ask(self, url: str, ask: Ask) -> Told:
        """Make the request and return what came of it; the client's errors are returned, not raised."""


class Clients:
    """All clients, asked at once: a test's time is that of the slowest, and a difference shows its client's name."""

    def __init__(self, *clients: Client) -> None:
        self._clients = clients

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients)

    async def ask(self, url: str, ask: Ask) -> dict[str, Told]:
        """Make the same request by every client, the client's name being its content."""
        asks = [client.ask(url, replace(ask, content=client.name)) for client in self._clients]
        answers = await asyncio.gather(*asks)
        return {client.name: told for client, told in zip(self._clients, answers, strict=True)}

    def all(self, value: Any) -> dict[str, Any]:
        """Return what `ask` returns if every client gives the same."""
        return {client.name: value for client in self._clients}
