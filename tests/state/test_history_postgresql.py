"""Conversations in a real PostgreSQL: kept, found and bounded as in SQLite, and what happens when it is away."""

import asyncio
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_ui.history import threads
from chat_ui.history.errors import NotTheirs, StoreTooNew, StoreUnavailable
from chat_ui.history.opening import look_at
from chat_ui.history.store import Store
from chat_ui.history.threads import Step, Thread
from sqlalchemy import text

from tests.conftest import free_ports
from tests.state.postgresql import PostgreSQL

ALICE, BOB = "account:alice", "account:bob"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    # pytest's folders are for root alone.
    with tempfile.TemporaryDirectory() as folder:
        server = PostgreSQL(Path(folder), free_ports(["postgresql"])["postgresql"])
        server.start()
        yield server
        server.stop()


@pytest.fixture(autouse=True)
def patient_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer than people would: a busy machine is no broken store."""
    monkeypatch.setattr("chat_ui.history.store.WORK_SECONDS", 60.0)


async def keep(store: Store, owner: str, *texts: str) -> Thread:
    thread_id = str(uuid.uuid4())
    async with store.work() as connection:
        await threads.claim(connection, thread_id, owner, texts[0])
        for number, said in enumerate(texts):
            step = Step(str(uuid.uuid4()), thread_id, f"2026-11-30T10:00:{number:02}Z", "user_message", "x", said, said)
            await threads.keep_step(connection, step)
        found = await threads.find(connection, thread_id, owner)
    assert found
    return found


async def names(store: Store, owner: str, search: str = "") -> list[str]:
    async with store.work() as connection:
        found, _ = await threads.page(connection, owner, search=search, thumb=None, after="", count=100)
    return sorted(thread.name for thread in found)


async def test_two_processes_that_start_at_once_make_one_set_of_tables(server: PostgreSQL) -> None:
    stores = [Store(server.url) for _ in range(4)]
    await asyncio.gather(*(look_at(store) for store in stores))
    assert await names(stores[0], ALICE) == []
    await stores[0].close()


async def test_what_is_kept_is_found_by_its_person_alone(server: PostgreSQL) -> None:
    store = Store(server.url)
    owner = f"account:{uuid.uuid4()}"
    thread = await keep(store, owner, "你好", "a NEEDLE in 100% hay\x00 \ud83d")
    assert thread.steps[1].text == "a NEEDLE in 100% hay ?"
    assert await names(store, owner, "needle") == ["你好"]
    assert await names(store, owner, "100_") == []
    assert await names(store, BOB, "needle") == []
    with pytest.raises(NotTheirs):
        await keep_in(store, thread.id, BOB)
    async with store.work() as connection:
        await threads.rate(connection, thread.steps[0].id, owner, 1, "good")
        await threads.rate(connection, thread.steps[0].id, owner, 0, "bad")
        await threads.rename(connection, thread.id, owner, "other")
        found = await threads.find(connection, thread.id, owner)
        assert found
        assert (found.name, found.steps[0].thumb, found.steps[0].comment) == ("other", 0, "bad")
        await threads.remove(connection, thread.id, owner)
    assert await names(store, owner) == []
    await store.close()


async def keep_in(store: Store, thread_id: str, owner: str) -> None:
    async with store.work() as connection:
        await threads.claim(connection, thread_id, owner, "mine")


async def test_a_newer_store_stops_the_start(server: PostgreSQL) -> None:
    store = Store(server.url)
    async with store.work() as connection:
        await connection.execute(text("UPDATE history_version SET version = version + 90"))
    await store.close()
    with pytest.raises(StoreTooNew, match="run the newer release"):
        await look_at(store)
    engine = store._create_engine()
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE history_version SET version = version - 90"))
    await engine.dispose()


async def test_a_server_that_goes_and_comes_back_is_used_again(server: PostgreSQL) -> None:
    store = Store(server.url)
    store.rest_seconds = 0
    owner = f"account:{uuid.uuid4()}"
    await keep(store, owner, "before")
    server.stop()
    with pytest.raises(StoreUnavailable) as told:
        await keep(store, owner, "during")
    assert "hush" not in str(told.value)
    server.start()
    await keep(store, owner, "after")
    assert await names(store, owner) == ["after", "before"]
    await store.close()
