"""The store on a real SQLite file: what is kept, whose it is, how it is upgraded, and what happens when it fails."""

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from chat_ui.history import threads
from chat_ui.history.errors import NotTheirs, StoreTooNew, StoreUnavailable
from chat_ui.history.guests import Guests, remove_oldest, remove_unused
from chat_ui.history.migrations import scripts
from chat_ui.history.opening import look_at, store_at
from chat_ui.history.store import Store, engine_url
from chat_ui.history.threads import Step, Thread

ALICE, BOB = "account:alice", "account:bob"


@pytest.fixture(autouse=True)
def patient_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer than people would: a busy machine is no broken store."""
    monkeypatch.setattr("chat_ui.history.store.WORK_SECONDS", 60.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = store_at("", tmp_path)
    yield store
    await store.close()


def step(thread_id: str, text: str, number: int = 0, kind: str = "user_message") -> Step:
    created_at = f"2026-11-30T10:00:{number:02}Z"
    return Step(str(uuid.uuid4()), thread_id, created_at, kind, "x", output=f"shown {text}", text=text)


async def keep(store: Store, owner: str, *texts: str) -> Thread:
    """Keep a conversation of these messages."""
    thread_id = str(uuid.uuid4())
    async with store.work() as connection:
        await threads.claim(connection, thread_id, owner, texts[0])
        for number, text in enumerate(texts):
            await threads.keep_step(connection, step(thread_id, text, number))
        found = await threads.find(connection, thread_id, owner)
    assert found
    return found


async def names(store: Store, owner: str, search: str = "", thumb: int | None = None) -> list[str]:
    async with store.work() as connection:
        found, _ = await threads.page(connection, owner, search=search, thumb=thumb, after="", count=100)
    return [thread.name for thread in found]


async def test_a_conversation_comes_back_as_it_was_and_to_nobody_else(store: Store) -> None:
    thread = await keep(store, ALICE, "你好", "100 % of a_b")
    assert [step.text for step in thread.steps] == ["你好", "100 % of a_b"]
    assert [step.output for step in thread.steps] == ["shown 你好", "shown 100 % of a_b"]
    async with store.work() as connection:
        assert await threads.owner_of(connection, thread.id) == ALICE
        assert await threads.find(connection, thread.id, BOB) is None
    assert await names(store, BOB) == []


async def test_another_person_changes_nothing(store: Store) -> None:
    thread = await keep(store, ALICE, "你好")
    first = thread.steps[0].id
    with pytest.raises(NotTheirs):
        async with store.work() as connection:
            await threads.claim(connection, thread.id, BOB, "mine")
    with pytest.raises(NotTheirs):
        async with store.work() as connection:
            await threads.rate(connection, first, BOB, 0, "no")
    own = await keep(store, BOB, "own")
    async with store.work() as connection:
        await threads.rename(connection, thread.id, BOB, "mine")
        await threads.set_settings(connection, thread.id, BOB, {"chat_settings": {"x": 1}})
        await threads.drop_step(connection, first, BOB)
        await threads.remove(connection, thread.id, BOB)
        # A message of the same id in a conversation of one's own replaces nothing.
        await threads.keep_step(connection, Step(first, own.id, "2026", "user_message", "x", "theft", "theft"))
        kept = await threads.find(connection, thread.id, ALICE)
    assert kept
    assert (kept.name, kept.settings, [s.text for s in kept.steps]) == ("你好", {}, ["你好"])


@pytest.mark.parametrize(
    ("search", "found"),
    [("Needle", True), ("nEEDLE", True), ("今天", True), ("100%", True), ("100_", False), ("'); --", False)],
)
async def test_search_looks_into_what_was_said(store: Store, search: str, found: bool) -> None:
    await keep(store, ALICE, "first", "a needle in 100% hay 今天天气")
    await keep(store, ALICE, "second")
    await keep(store, BOB, "needle 今天 100% '); --")
    assert await names(store, ALICE, search) == (["first"] if found else [])


async def test_the_list_is_paged_by_last_use_and_none_is_left_out(store: Store) -> None:
    kept = [await keep(store, ALICE, str(number)) for number in range(7)]
    async with store.work() as connection:
        await threads.claim(connection, kept[2].id, ALICE, "")
    listed: list[str] = []
    after, more = "", True
    while more:
        async with store.work() as connection:
            found, more = await threads.page(connection, ALICE, search="", thumb=None, after=after, count=3)
        listed += [thread.name for thread in found]
        after = found[-1].id
    assert sorted(listed) == [str(number) for number in range(7)]
    assert listed[0] == "2" or kept[6].used_ms == kept[2].used_ms


async def test_a_thumb_is_kept_with_its_comment_changed_and_taken_back(store: Store) -> None:
    thread = await keep(store, ALICE, "你好")
    first = thread.steps[0].id
    async with store.work() as connection:
        await threads.rate(connection, first, ALICE, 1, "good")
        await threads.rate(connection, first, ALICE, 0, "bad")
        rated = await threads.find(connection, thread.id, ALICE)
        assert rated
        assert (rated.steps[0].thumb, rated.steps[0].comment) == (0, "bad")
    assert await names(store, ALICE, thumb=0) == ["你好"]
    assert await names(store, ALICE, thumb=1) == []
    async with store.work() as connection:
        await threads.unrate(connection, first, BOB)
    assert await names(store, ALICE, thumb=0) == ["你好"]
    async with store.work() as connection:
        await threads.unrate(connection, first, ALICE)
    assert await names(store, ALICE, thumb=0) == []


async def test_what_no_database_takes_is_kept_without_it(store: Store) -> None:
    thread = await keep(store, ALICE, "a\x00b \ud83d c")
    assert [step.text for step in thread.steps] == ["ab ? c"]


async def test_unused_conversations_of_guests_go_and_no_others(store: Store, tmp_path: Path) -> None:
    await keep(store, "guest:1", "old", "answer")
    await keep(store, "guest:2", "new")
    await keep(store, ALICE, "old too")
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        file.execute("UPDATE threads SET used_ms = used_ms - 31 * 86400000 WHERE name LIKE 'old%'")
    async with store.work() as connection:
        assert await remove_unused(connection, "guest:", days=30) == 1
    assert [await names(store, owner) for owner in ("guest:1", "guest:2", ALICE)] == [[], ["new"], ["old too"]]
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        assert file.execute("SELECT count(*) FROM steps WHERE text = 'answer'").fetchone() == (0,)


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    """Return by the name of each conversation its size as counted, and as it is."""
    with sqlite3.connect(folder / "history.sqlite") as file:
        rows = file.execute(
            "SELECT name, bytes, (SELECT count(*) * 200 + sum(length(CAST(output || text || details AS BLOB)))"
            " FROM steps WHERE thread_id = threads.id) + 200 FROM threads"
        )
        return {name: (counted, actual) for name, counted, actual in rows}


async def test_the_size_of_a_conversation_follows_what_is_said_changed_and_dropped(
    store: Store, tmp_path: Path
) -> None:
    thread = await keep(store, ALICE, "你好", "second", "third")
    other = await keep(store, BOB, "other")
    async with store.work() as connection:
        longer = step(thread.id, "much longer than it was 🔥" * 100)
        changed = Step(**{**{name: getattr(longer, name) for name in longer.__slots__}, "id": thread.steps[1].id})
        assert await threads.keep_step(connection, changed) > 5000
        await threads.drop_step(connection, thread.steps[2].id, ALICE)
        # Neither another's message nor one that is elsewhere counts.
        await threads.drop_step(connection, thread.steps[0].id, BOB)
        stolen = Step(thread.steps[0].id, other.id, "2026", "user_message", "x", "theft", "theft")
        assert await threads.keep_step(connection, stolen) == 0
    found = sizes(tmp_path)
    assert found["你好"][0] > 5000
    assert all(counted == actual for counted, actual in found.values())


async def test_where_guests_take_too_much_room_those_go_that_were_not_used_for_longest(
    store: Store, tmp_path: Path
) -> None:
    guests = Guests(store, "guest:", days=30, room_bytes=100_000)
    await keep(store, ALICE, "an account's", "x" * 200_000)
    for number in range(10):
        await keep(store, f"guest:{number}", str(number), "x" * 10_000)
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        file.execute("UPDATE threads SET used_ms = used_ms - 1000 * (20 - CAST(name AS INTEGER)) WHERE name <> '3'")
    await guests.sweep()
    # Each takes a little more than 20 kB, shown and said; the fourth was used last.
    found = sizes(tmp_path)
    assert set(found) == {"3", "7", "8", "9", "an account's"}
    assert 80_000 < sum(counted for name, (counted, _) in found.items() if name != "an account's") <= 100_000
    assert all(counted == actual for counted, actual in found.values())
    await guests.sweep()
    assert sizes(tmp_path) == found


async def test_many_conversations_go_in_one_sweep(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat_ui.history.guests.AT_ONCE", 2)
    for number in range(9):
        await keep(store, "guest:1", str(number))
    async with store.work() as connection:
        assert await remove_oldest(connection, "guest:", room_bytes=1) == 2
    await Guests(store, "guest:", days=30, room_bytes=1).sweep()
    assert await names(store, "guest:1") == []


def test_a_sweep_is_due_each_hour_and_when_much_was_written(store: Store) -> None:
    guests = Guests(store, "guest:", days=30, room_bytes=160)
    assert [guests.take_turn(), guests.take_turn()] == [True, False]
    guests.note_written(9)
    assert not guests.take_turn()
    guests.note_written(1)
    assert [guests.take_turn(), guests.take_turn()] == [True, False]


async def test_a_store_from_before_sizes_were_counted_is_estimated(store: Store, tmp_path: Path) -> None:
    thread = await keep(store, "guest:1", "old", "answer " * 1000)
    await keep(store, "guest:2", "newer")
    await store.close()
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        file.execute("ALTER TABLE steps DROP COLUMN bytes")
        file.execute("ALTER TABLE threads DROP COLUMN bytes")
        file.execute("UPDATE history_version SET version = 1")
    async with store.work() as connection:
        assert await remove_oldest(connection, "guest:", room_bytes=20_000) == 1
        assert await threads.find(connection, thread.id, "guest:1") is None
    assert await names(store, "guest:2") == ["newer"]


async def test_many_at_a_time_are_all_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat_ui.history.store.SQLITE_BUSY_SECONDS", 60.0)
    await asyncio.gather(*(keep(store, ALICE, str(number), "x") for number in range(30)))
    assert sorted(await names(store, ALICE), key=int) == [str(number) for number in range(30)]


async def test_an_older_store_is_upgraded_with_what_it_holds(store: Store, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        file.execute("CREATE TABLE history_version (version INTEGER NOT NULL)")
    await look_at(store)
    await keep(store, ALICE, "kept")
    await store.close()
    await look_at(store)
    assert await names(store, ALICE) == ["kept"]
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        assert file.execute("SELECT version FROM history_version").fetchall() == [(len(scripts()),)]


async def test_an_upgrade_that_breaks_leaves_the_store_as_it_was(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(store, ALICE, "kept")
    await store.close()
    broken = [*scripts(), "CREATE TABLE more (id INTEGER); INSERT INTO nowhere VALUES (1)"]
    monkeypatch.setattr("chat_ui.history.migrations.scripts", lambda: broken)
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await store.open()
    monkeypatch.undo()
    assert await names(store, ALICE) == ["kept"]
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        assert file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'more'").fetchone() == (0,)


async def test_a_newer_store_stops_the_start_and_is_left_alone(store: Store, tmp_path: Path) -> None:
    await keep(store, ALICE, "kept")
    await store.close()
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        file.execute("UPDATE history_version SET version = 99")
    with pytest.raises(StoreTooNew, match="run the newer release"):
        await look_at(store)
    with pytest.raises(StoreUnavailable, match="run the newer release"):
        await names(store, ALICE)


async def test_a_file_that_is_no_database_costs_no_start_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "history.sqlite").write_text("no database " * 1000)
    store = store_at("", tmp_path)
    await look_at(store)
    caplog.clear()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="not a database"):
            await names(store, ALICE)
    assert len(caplog.records) == 1
    assert "history.sqlite" in caplog.text


async def test_a_locked_store_is_given_up_on_in_time_and_used_again(store: Store, tmp_path: Path) -> None:
    await keep(store, ALICE, "before")
    with sqlite3.connect(tmp_path / "history.sqlite", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await keep(store, ALICE, "during")
        other.execute("ROLLBACK")
    store.rest_seconds = 0
    await keep(store, ALICE, "after")
    assert sorted(await names(store, ALICE)) == ["after", "before"]


async def test_a_full_store_is_still_read(store: Store, tmp_path: Path) -> None:
    await keep(store, ALICE, "before")
    store.rest_seconds = 0

    async def keep_too_much() -> None:
        async with store.work() as connection:
            await connection.exec_driver_sql("PRAGMA max_page_count = 1")
            await threads.claim(connection, str(uuid.uuid4()), ALICE, "x" * 100_000)

    with pytest.raises(StoreUnavailable, match="full"):
        await keep_too_much()
    assert await names(store, ALICE) == ["before"]


def test_an_address_is_shown_without_its_password() -> None:
    store = Store("postgresql://chat:hush@db/chat?sslmode=require")
    assert "hush" not in store.place
    assert engine_url("postgresql://chat:hush@db/chat?sslmode=require").query == {"ssl": "require"}


async def test_a_server_that_is_not_there_is_named_without_its_password(caplog: pytest.LogCaptureFixture) -> None:
    store = Store("postgresql://chat:hush@127.0.0.1:9/chat")
    await look_at(store)
    with pytest.raises(StoreUnavailable):
        await names(store, ALICE)
    assert "127.0.0.1:9" in caplog.text
    assert "hush" not in caplog.text
