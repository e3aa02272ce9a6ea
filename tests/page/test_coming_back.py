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


async def test_a_page_that_has_its_conversation_is_not_shown_it_again_and_one_that_has_nothing_is(
    page: ObservedPage,
) -> None:
    guest = await page.guest()
    async with Person(page.url, HERE, guest) as person:
        await person.ask("hello")
        await until(lambda: bool(person.thread_id))
    # Loaded anew, and its connection lost, twice.
    gone = await Person(page.url, HERE, guest, thread_id=person.thread_id).__aenter__()
    await until(lambda: gone.threads_shown == 1)
    await gone.close_tab()
    same = {"session_id": gone.session_id, "thread_id": gone.thread_id}

    has_it = await Person(page.url, HERE, guest, **same).__aenter__()
    await called(has_it)
    await has_it.send("at once")
    await until(lambda: "You said at once." in has_it.shown.values())
    assert has_it.threads_shown == 0
    await has_it.close_tab()

    async with Person(page.url, HERE, guest, **same) as has_nothing:
        await has_nothing.say({"type": "here", "token": await called(has_nothing), "is_empty": True})
        await until(lambda: has_nothing.threads_shown == 1)
        assert sorted(has_nothing.shown.values()) == ["You said at once.", "You said hello.", "at once", "hello"]
        await has_nothing.send("next")
        await until(lambda: "You said next." in has_nothing.shown.values())
    contents = [message["content"] for message in page.gateway.prompts[-1]]
    assert contents == ["hello", "You said hello.", "at once", "You said at once.", "next"]


async def test_a_question_that_was_lost_while_the_server_was_started_anew_is_answered(tmp_path: Path) -> None:
    kept = {"CHAT_UI_DATA_DIR": str(tmp_path)}
    async with running_page(tmp_path, **kept) as page:
        guest = await page.guest()
        async with Person(page.url, HERE, guest) as person:
            await person.ask("hello")
            await until(lambda: bool(person.thread_id))
    async with running_page(tmp_path, **kept) as page:
        # The same page, which shows its conversation still.
        same = {"session_id": person.session_id, "thread_id": person.thread_id}
        async with Person(page.url, HERE, guest, **same) as again:
            token, lost = await called(again), str(uuid.uuid4())
            await again.say({"type": "here", "token": token, "id": lost, "text": "lost"})
            await until(lambda: "You said lost." in again.shown.values())
            # The conversation that it was shown has come over the question.
            assert again.shown[lost] == "lost"
    assert asked(page) == ["lost"]


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
