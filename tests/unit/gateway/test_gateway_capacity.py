"""How many an engine is given, by the figures of an engine that is modelled look by look."""

from types import SimpleNamespace

import pytest
from gateway.admission import EngineFigures, NumberInAll
from gateway.admission.capacity import TRIED_EVERY_SECONDS, TRIED_FOR_SECONDS
from gateway.admission.learned import FIRST
from gateway.upstreams import Engine, Load, OwnWork
from gateway.upstreams.status import EngineStatus


def looks(capacity: EngineFigures, engine: Engine, runs: int, asked: int, number: int) -> list[int]:
    """Look so often at an engine that runs at most `runs`, while `asked` are there to be given; return the limits."""
    found = []
    for _ in range(number):
        limit = capacity.most(engine)
        engine.work = OwnWork(asked if limit is None else min(asked, limit))
        running = min(engine.outstanding, runs)
        engine.load = Load(engine.outstanding - running, running, engine.outstanding)
        found.append(capacity.most(engine) or 0)
    return found


def told(sequences: int | None) -> Engine:
    """Return an engine of which its launcher says how many it runs at most."""
    engine = Engine("e", "http://e")
    tell(engine, sequences)
    return engine


def tell(engine: Engine, sequences: int | None) -> None:
    engine.hear(EngineStatus(stage="serving", since=1.0, port=8000, sequences=sequences))
    engine.attention.clear()


@pytest.mark.parametrize("runs", [1, 4, 16, 64, 256, 1024])
def test_settles_where_the_engine_is_full_and_next_to_none_waits_in_it(runs: int) -> None:
    found = looks(EngineFigures(), Engine("e", "http://e"), runs, asked=5000, number=40)
    # Soon, for good, and with what keeps the engine from running dry.
    assert found[25] == found[-1]
    assert runs < found[-1] <= runs + max(1, runs // 16)


def test_is_there_within_ten_looks() -> None:
    found = looks(EngineFigures(), Engine("e", "http://e"), 1024, asked=5000, number=10)
    assert found[-1] >= 1024


def test_engine_that_is_not_full_is_given_no_more_than_it_was() -> None:
    assert set(looks(EngineFigures(), Engine("e", "http://e"), 1024, asked=10, number=9)) == {FIRST}


def test_follows_an_engine_that_can_do_less_and_then_more() -> None:
    capacity, engine = EngineFigures(), Engine("e", "http://e")
    looks(capacity, engine, 64, asked=500, number=20)
    assert looks(capacity, engine, 8, asked=500, number=20)[-1] == 9
    assert 64 < looks(capacity, engine, 64, asked=500, number=20)[-1] <= 68


def test_one_bad_look_halves_at_most() -> None:
    capacity, engine = EngineFigures(), Engine("e", "http://e")
    settled = looks(capacity, engine, 64, asked=500, number=20)[-1]
    engine.load = Load(settled, 0, settled)
    assert capacity.most(engine) == settled // 2


def test_spare_places_are_kept_where_it_is_known_what_the_engine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = TRIED_FOR_SECONDS + 1
    monkeypatch.setattr("gateway.admission.capacity.time", SimpleNamespace(monotonic=lambda: now))
    capacity, engine = EngineFigures(), Engine("e", "http://e")
    engine.load = Load(0, 0, 0)
    engine.work = OwnWork(FIRST - 1)
    assert capacity.has_room(engine, 0, spare=True), "nothing is known yet"
    most = looks(capacity, engine, 64, asked=500, number=20)[-1]
    for outstanding, spared, others in (
        (59, True, True),
        (60, False, True),
        (most - 1, False, True),
        (most, False, False),
    ):
        engine.work = OwnWork(outstanding)
        assert capacity.has_room(engine, 0, spare=True) == spared
        assert capacity.has_room(engine, 0, spare=False) == others
    now = TRIED_EVERY_SECONDS
    engine.work = OwnWork(60)
    assert capacity.has_room(engine, 0, spare=True)


@pytest.mark.parametrize(
    ("number", "spared"), [(1, 1), (2, 2), (7, 7), (8, 7), (16, 14), (17, 15), (48, 45), (160, 150)]
)
def test_spare_places_of_a_fixed_number(number: int, spared: int) -> None:
    capacity, engine = NumberInAll(number), Engine("e", "http://e")
    assert [capacity.has_room(engine, running, spare=True) for running in (spared - 1, spared)] == [True, False]
    assert [capacity.has_room(engine, running, spare=False) for running in (number - 1, number)] == [True, False]


def test_engine_that_publishes_nothing_has_no_limit() -> None:
    capacity, engine = EngineFigures(), Engine("e", "http://e")
    engine.work = OwnWork(10_000)
    assert capacity.most(engine) is None
    assert capacity.has_room(engine, 10_000, spare=True)


@pytest.mark.parametrize("sequences", [1, 4, 256, 1024])
def test_engine_is_given_what_its_launcher_says_at_once_and_never_more(sequences: int) -> None:
    capacity, engine = EngineFigures(), told(sequences)
    assert capacity.most(engine) == sequences, "before any look"
    assert set(looks(capacity, engine, sequences, asked=5000, number=20)) == {sequences}


def test_cache_that_holds_fewer_than_the_launcher_says_is_found_out() -> None:
    capacity, engine = EngineFigures(), told(256)
    assert 64 < looks(capacity, engine, 64, asked=500, number=20)[-1] <= 66
    assert looks(capacity, engine, 256, asked=500, number=20)[-1] == 256, "and found out again when it holds more"


def test_engine_of_which_nothing_is_told_is_learned() -> None:
    capacity, engine = EngineFigures(), told(None)
    assert capacity.most(engine) is None
    assert looks(capacity, engine, 64, asked=FIRST, number=1) == [2 * FIRST]


def test_silent_launcher_leaves_what_it_has_said_and_another_number_begins_anew() -> None:
    capacity, engine = EngineFigures(), told(64)
    looks(capacity, engine, 8, asked=500, number=20)
    engine.hear(None)
    assert looks(capacity, engine, 64, asked=500, number=20)[-1] == 64
    tell(engine, 32)
    assert capacity.most(engine) == 32


def test_spare_places_are_kept_at_once_where_it_is_told_what_the_engine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admission.capacity.time", SimpleNamespace(monotonic=lambda: TRIED_EVERY_SECONDS))
    capacity, engine = EngineFigures(), told(64)
    engine.work = OwnWork(60)
    assert capacity.has_room(engine, 0, spare=False)
    assert not capacity.has_room(engine, 0, spare=True), "nothing is left to try"
    looks(capacity, engine, 8, asked=500, number=20)
    engine.work = OwnWork(8)
    assert capacity.has_room(engine, 0, spare=True), "it may hold more by now"


def test_no_look_is_asked_for_where_nothing_can_be_learned() -> None:
    capacity, engine = EngineFigures(), told(64)
    looks(capacity, engine, 64, asked=500, number=1)
    capacity.note_crowd(engine)
    assert not engine.attention.is_set()
    looks(capacity, engine, 8, asked=500, number=1)
    looks(capacity, engine, 64, asked=500, number=1)
    engine.work = OwnWork(capacity.most(engine) or 0)
    capacity.note_crowd(engine)
    assert engine.attention.is_set()
