"""A page that lost its connection, or was loaded anew: what was said arrives once, and Stop still stops."""

import uuid
from pathlib import Path

import pytest

from tests.edge.person import Person
from tests.page.process import ObservedPage, running_page, until

pytestmark = pytest.mark.browser

HERE = "127.0.0.1"


async def called(person: Person) -> str:
    """Return the token of the roll call that a page gets when it is back."""

    def calls() -> list[str]:
        return [told["token"] for told in person.told_to_scripts if told["type"] == "roll-call"]

    await until(lambda: bool(calls()))
    return calls()[-1]


def asked(page: ObservedPage) -> list[str]:
    return [prompt[-1]["content"] for prompt in page.gateway.prompts]


async def test_a_question_that_never_came_is_answered_once_and_one_that_came_is_not_repeated(
    page: ObservedPage,
) -> None:
    guest = await page.guest()
    person = await Person(page.url, HERE, guest).__aenter__()
    known = await person.send("hello")
    await person.done()
    await person.close_tab()

    person = await Person(page.url, HERE, guest, session_id=person.session_id).__aenter__()
    here = {"type": "here", "id": known, "text": "hello"}
    await person.say(here | {"token": await called(person)})
    # Once a roll call is answered, nothing counts but the next.
    await person.say(here | {"token": await called(person), "id": str(uuid.uuid4()), "text": "forged"})
    await person.close_tab()

    async with Person(page.url, HERE, guest, session_id=person.session_id) as person:
        token, lost = await called(person), str(uuid.uuid4())
        await person.say({"type": "here", "token": "guessed", "id": str(uuid.uuid4()), "text": "forged"})
        await person.say({"type": "here", "token": token, "id": lost, "text": "lost"})
        await until(lambda: "You said lost." in person.shown.values())
        # The message itself, late.
        await person.send("lost", lost)
        await person.send("next")
        await until(lambda: "You said next." in person.shown.values())
    assert asked(page) == ["hello", "lost", "next"]
    assert [message["content"] for message in page.gateway.prompts[-1]] == [
        "hello", "You said hello.", "lost", "You said lost.", "next",
    ]  # fmt: skip


async def begin(page: ObservedPage, guest: dict[str, str]) -> Person:
    """Ask for an answer without end, and lose the connection in the middle of it."""
    person = await Person(page.url, HERE, guest).__aenter__()
    await person.send("endless")
    await until(lambda: any("word word" in text for text in person.shown.values()) and bool(person.thread_id))
    await person.close_tab()
    return person


@pytest.mark.parametrize("way", ["reconnected", "reloaded"])
async def test_stop_works_on_an_answer_that_was_taken_over(tmp_path: Path, way: str) -> None:
    async with running_page(tmp_path, CHAT_UI_DISCONNECT_GRACE_SECONDS="600") as page:
        guest = await page.guest()
        gone = await begin(page, guest)
        same = {"session_id": gone.session_id} if way == "reconnected" else {"thread_id": gone.thread_id}
        async with Person(page.url, HERE, guest, **same) as person:
            await until(lambda: any("word word" in text for text in person.shown.values()))
            assert page.gateway.aborted_streams == 0
            await person.stop()
            await until(lambda: page.gateway.aborted_streams == 1)
            await until(lambda: any("Stopped: the answer above is not complete." in t for t in person.shown.values()))
            [answer] = [text for text in person.shown.values() if "Stopped" in text]
            assert answer.startswith("word word")
            await person.send("next")
            await until(lambda: "You said next." in person.shown.values())
        roles = [message["role"] for message in page.gateway.prompts[-1]]
        assert roles == ["user", "assistant", "user"]
        assert page.gateway.prompts[-1][1]["content"].startswith("word word")


async def test_stop_works_twice_over_reloads(tmp_path: Path) -> None:
    async with running_page(tmp_path, CHAT_UI_DISCONNECT_GRACE_SECONDS="600") as page:
        guest = await page.guest()
        gone = await begin(page, guest)
        reloaded = await Person(page.url, HERE, guest, thread_id=gone.thread_id).__aenter__()
        await until(lambda: any("word word" in text for text in reloaded.shown.values()))
        await reloaded.close_tab()
        async with Person(page.url, HERE, guest, thread_id=gone.thread_id) as again:
            await until(lambda: any("word word" in text for text in again.shown.values()))
            await again.stop()
            await until(lambda: page.gateway.aborted_streams == 1)
        assert page.gateway.open_streams == 0
