"""Many people who come to the page and go, and what is left of them: `python -m tests.page.sessions 500 2`."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.edge.person import Person
from tests.page.process import PATIENCE_SECONDS, ObservedPage, running_page, until

HERE = "127.0.0.1"
AT_A_TIME = 10
# So many come before the first count: imports, caches and pools are filled by then.
FIRST = 20
ENDS = ("You said count to 20.", "Stopped")


async def new_chat(page: ObservedPage) -> None:
    """Ask, read the answer, and begin a new conversation, which ends the session at once."""
    async with Person(page.url, HERE, await page.guest()) as person:
        assert await person.ask("hello") == "You said hello."


async def closed_tab(page: ObservedPage) -> None:
    """Ask, read the answer, close the tab."""
    person = await Person(page.url, HERE, await page.guest(), polls=True).__aenter__()
    assert await person.ask("hello") == "You said hello."
    await person.close_tab()


async def closed_tab_in_the_middle(page: ObservedPage) -> None:
    """Close the tab in the middle of an answer."""
    person = await Person(page.url, HERE, await page.guest()).__aenter__()
    await person.send("endless")
    await until(lambda: any("word" in text for text in person.shown.values()))
    await person.close_tab()


async def lost_connection(page: ObservedPage) -> None:
    """Lose the connection in the middle of an answer and come back to it, to its end."""
    guest = await page.guest()
    person = await Person(page.url, HERE, guest).__aenter__()
    await person.send("count to 20")
    await until(lambda: any("1 2 3" in text for text in person.shown.values()))
    await person.close_tab()
    async with Person(page.url, HERE, guest, session_id=person.session_id) as again:
        # On a slow machine the grace may be over.
        await until(lambda: any(end in text for text in again.shown.values() for end in ENDS))


async def looked_only(page: ObservedPage) -> None:
    """Open the page and close it."""
    person = await Person(page.url, HERE, await page.guest(), polls=True).__aenter__()
    await person.close_tab()


VISITS: tuple[Callable[[ObservedPage], Awaitable[None]], ...] = (
    new_chat,
    closed_tab,
    closed_tab_in_the_middle,
    lost_connection,
    looked_only,
)
# What there is for each person, and how many of each may be left however many came. Engine.IO's watchman keeps hold of
# the connection that it looked at last; the connections to the gateway that stay open, of those who opened them.
OF_A_PERSON = {"WebsocketSession": 20, "PageState": 0, "Message": 0, "BrowserSocket": 20, "Outbox": 1}


@dataclass(frozen=True, slots=True)
class Figures:
    """What the page held before and after so many sessions."""

    sessions: int
    before: dict[str, int]
    after: dict[str, int]
    seconds: float

    @property
    def bytes_a_session(self) -> float:
        """Memory that is not given back, for each session."""
        return (self.after["bytes"] - self.before["bytes"]) / self.sessions


async def visit(page: ObservedPage, count: int) -> None:
    """Let so many people come, some at a time, each in one of the ways."""
    places = asyncio.Semaphore(AT_A_TIME)

    async def come(number: int) -> None:
        async with places:
            await VISITS[number % len(VISITS)](page)

    async with asyncio.TaskGroup() as people:
        for number in range(count):
            people.create_task(come(number))


async def settled(page: ObservedPage) -> dict[str, int]:
    """Return what the page holds once nobody is there any more and nothing of anybody's is left."""
    await until(lambda: page.gateway.open_streams == 0)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        held = await page.held()
        if all(held[kind] <= left for kind, left in OF_A_PERSON.items()):
            return held
        assert time.monotonic() < deadline, f"it stays: {held}"
        await asyncio.sleep(0.5)


async def come_and_go(page: ObservedPage, sessions: int) -> Figures:
    """Count, let so many come and go, and count again."""
    await visit(page, FIRST)
    before, started_at = await settled(page), time.monotonic()
    await visit(page, sessions)
    seconds = time.monotonic() - started_at
    return Figures(sessions, before, await settled(page), round(seconds, 1))


async def main(sessions: int, rounds: int) -> None:
    """Print what each of several rounds brought: memory that grows with the first one alone is no leak."""
    with tempfile.TemporaryDirectory() as folder:
        async with running_page(Path(folder)) as page:
            for _ in range(rounds):
                figures = await come_and_go(page, sessions)
                print(figures, f"{figures.bytes_a_session:.0f} bytes a session")  # noqa: T201  (a program)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
