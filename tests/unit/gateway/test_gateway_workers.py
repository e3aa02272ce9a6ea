"""What the gateway's processes share: numbers, bytes, the engines, whose turn it is; and how many workers there are."""

import asyncio
import copy
import json
import os
from pathlib import Path

import pytest
from gateway.admission import Admission, NumberInAll
from gateway.cells import COLUMNS, Cells
from gateway.metrics import Metrics
from gateway.schemas import Exchange, Generation
from gateway.upstreams import Engine, Launcher, Load, Start, State, Upstreams, read_status
from gateway.workers import Shared, Truth, usable_cores
from gateway.workers.engines import MOST_ENGINES
from gateway.workers.note import Note
from prometheus_client import CollectorRegistry

GENERATION = Generation("/v1/chat/completions", b"{}", stream=False, hide_usage=False)


def test_cells_are_summed_over_rows_and_levels_go_with_their_process() -> None:
    cells = Cells(3)
    counted, open_now = cells.columns(), cells.columns(2, level=True)
    for row in range(3):
        cells.sit(row)
        cells.own[counted] += row
        cells.own[open_now + 1] += 5
    cells.vacate(1)
    assert (cells.total(counted), cells.total(open_now + 1)) == (3, 10)
    with pytest.raises(ValueError, match="columns"):
        cells.columns(COLUMNS)


def test_another_process_sees_the_numbers_and_they_outlive_it() -> None:
    cells, note = Cells(2), Note(100)
    column = cells.columns()
    pid = os.fork()
    if not pid:
        cells.sit(1)
        cells.own[column] = 7
        note.put("自".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert cells.of(column) == [0, 7]
    assert note.get().decode() == "自"


def test_a_note_is_what_was_put_last_and_never_too_long() -> None:
    note = Note(8)
    assert note.get() == b""
    for content in (b"12345678", b"", b"abc"):
        note.put(content)
        assert note.get() == content
    with pytest.raises(ValueError, match="9 bytes"):
        note.put(b"123456789")
    assert note.get() == b"abc"
    assert note.version == 3


def test_the_truth_is_taken_over_and_engines_stay_who_they_are() -> None:
    shared = Shared(2)
    watched, followed = (Upstreams(("http://a:1", "http://b:2", "launcher://c:3")) for _ in range(2))
    writes, reads = Truth(watched, shared.engines), Truth(followed, shared.engines)
    first, second = watched.engines
    first.state, first.models = State.READY, [{"id": "m"}]
    first.load = Load(1, 2, 3)
    second.start = Start(5.0, None)
    reads.read(writes.write())
    one, other = followed.engines
    assert (one.label, one.state, one.models, one.load) == (first.label, State.READY, first.models, first.load)
    assert (other.start, other.takes_requests) == (Start(5.0, None), False)
    one.work.begin()
    assert first.outstanding == 1
    load = one.load
    second.state = State.BUSY
    watched._fixed.remove(first)
    watched._leaving.append(first)
    reads.read(writes.write())
    assert followed.engines == [other, one]
    assert followed.staying == [other]
    assert other.state is State.BUSY
    assert one.load is load
    assert followed.launchers.names_without_address == ["c:3"]


def test_engines_of_launchers_are_taken_over_with_what_was_said_of_them() -> None:
    shared = Shared(2)
    watched, followed = (Upstreams(("launcher://c:3",)) for _ in range(2))
    writes, reads = Truth(watched, shared.engines), Truth(followed, shared.engines)
    launcher = watched.launchers._known["c:3"]["10.0.0.1"] = Launcher("c:3/1", "10.0.0.1", 8090)
    reads.read(writes.write())
    assert [known.label for known in followed.launchers.all] == ["c:3/1"]
    engine = {"stage": "loading", "since": 1, "progress": 0.5, "port": 8000}
    told = {"version": 1, "stage": "serving", "since": 1, "engines": [engine]}
    watched.hear(launcher, read_status(200, json.dumps(told).encode()))
    reads.read(writes.write())
    [known] = followed.engines
    assert (known.label, known.base_url, known.number) == ("c:3/1/1", "http://10.0.0.1:8000", 0)
    assert "loading, 50 %" in followed.waits_for()
    assert followed.launchers.engines == [known]


def test_more_engines_than_there_are_numbers_are_refused() -> None:
    upstreams = Upstreams(("http://a:1",))
    truth = Truth(upstreams, Shared(1).engines)
    upstreams._fixed = [Engine(str(number), f"http://e{number}") for number in range(MOST_ENGINES)]
    truth.write()
    upstreams._fixed.append(Engine("more", "http://more"))
    with pytest.raises(ValueError, match="256 engines"):
        truth.write()


class Part:
    """One worker's admission, in this process, on rows that two of them share."""

    def __init__(self, shared: Shared, row: int, places: int, size: int) -> None:
        self.upstreams = Upstreams(("http://engine:8000",))
        [engine] = self.upstreams.engines
        engine.state = State.READY
        crowd = copy.copy(shared.crowd)
        crowd._cells = copy.copy(shared.cells)
        crowd._cells.sit(row)
        self.admission = Admission(
            self.upstreams,
            Metrics(CollectorRegistry()),
            NumberInAll(places),
            size=size,
            timeout_seconds=60,
            tell_seconds=60,
            crowd=crowd,
        )

    def ask(self, client: str) -> "asyncio.Task[object]":
        """Ask for a place, to be held until its gate is opened."""
        exchange = Exchange("r", "e", "chat_completions", "POST", 0.0, client=client)
        exchange.received_at = asyncio.get_running_loop().time()

        async def tell(_place: int, _seconds: float | None) -> None:
            raise AssertionError

        return asyncio.create_task(self.admission.admit(exchange, GENERATION, tell))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_place_is_that_worker_whose_clients_have_fewer() -> None:
    shared = Shared(2)
    one, other = (Part(shared, row, places=4, size=10) for row in (1, 2))
    greedy = [one.ask("greedy") for _ in range(8)]
    await settle()
    assert [task.done() for task in greedy] == [True] * 4 + [False] * 4
    polite = other.ask("polite")
    await settle()
    assert not polite.done()
    assert shared.crowd.waiting == 5
    place = greedy[0].result()
    with place:  # type: ignore[attr-defined]
        pass
    assert not greedy[4].done()
    other.admission.wake()
    await settle()
    assert polite.done()
    assert (shared.crowd.running, shared.crowd.waiting) == (4, 4)
    for task in [*greedy, polite]:
        task.cancel()


async def test_a_worker_that_does_not_take_its_turn_loses_it() -> None:
    shared = Shared(2)
    one, other = (Part(shared, row, places=4, size=10) for row in (1, 2))
    greedy = [one.ask("greedy") for _ in range(5)]
    await settle()
    hung = other.ask("of a process that hangs")
    await settle()
    with greedy[0].result():  # type: ignore[attr-defined]
        pass
    async with asyncio.timeout(5):
        await greedy[4]
    assert not hung.done()
    hung.cancel()


async def test_the_queue_is_as_long_as_set_over_all_workers() -> None:
    shared = Shared(2)
    one, other = (Part(shared, row, places=1, size=2) for row in (1, 2))
    tasks = [one.ask("a"), one.ask("b"), other.ask("c"), other.ask("d")]
    await settle()
    assert [task.done() for task in tasks] == [True, False, False, True]
    assert "wait already" in str(tasks[3].exception())
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, 64),
        ({"/": "max 100000"}, 64),
        ({"/": "250000 100000"}, 2),
        ({"/": "50000 100000"}, 1),
        ({"/": "max 100000", "/a/b": "800000 100000", "/a": "300000 100000"}, 3),
        ({"/a/b": "nonsense"}, 64),
    ],
)
def test_the_cores_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quotas: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    own = tmp_path / "own"
    own.write_text("1:cpuset:/elsewhere\n0::/a/b\n", encoding="ascii")
    for path, quota in quotas.items():
        folder = tmp_path / "groups" / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(quota + "\n", encoding="ascii")
    assert usable_cores(tmp_path / "groups", own) == cores
    assert usable_cores(tmp_path / "groups", tmp_path / "none") == 64
