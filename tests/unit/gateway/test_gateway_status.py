"""What a launcher's status is, and what is none; names and addresses as they are configured."""

import json
from typing import Any

import pytest
from gateway.upstreams import BadStatus, read_status
from gateway.upstreams.names import base_url, host_and_port
from gateway.upstreams.status import MOST_CARDS, MOST_ENGINES, STATUS_BYTES

ENGINE: dict[str, Any] = {"port": 8000, "stage": "compiling", "since": 1790000000, "started_at": 1790000000.5}
SOUND: dict[str, Any] = {"version": 1, "model": "ernie-demo", "stage": "loading", "since": 1.5, "engines": [ENGINE]}
CARD = {
    "uuid": "GPU-1",
    "name": "NVIDIA H200",
    "memory_used_bytes": 644874240,
    "memory_total_bytes": 150754820096,
}


def read(**changes: Any) -> Any:
    return read_status(200, json.dumps({**SOUND, **changes}).encode())


def test_what_is_told_is_read_and_what_is_new_is_passed_over() -> None:
    told = read(progress=0.43, detail="310 of 721 MB, 34 s left", engines=[{**ENGINE, "new": 1}], news=[1])
    assert (told.stage, told.since) == ("loading", 1.5)
    assert told.words == "loading, 43 % (310 of 721 MB, 34 s left)"
    [engine] = told.engines
    assert (engine.port, engine.started_at, engine.words) == (8000, 1790000000.5, "compiling")
    assert engine.sequences is None
    assert [read(engines=[{**ENGINE, "sequences": said}]).engines[0].sequences for said in (256, None)] == [256, None]


def test_cards_are_read_and_an_older_launcher_tells_none() -> None:
    assert read().cards == []
    [card] = read(cards=[{**CARD, "temperature": 31}]).cards
    assert (card.uuid, card.name) == ("GPU-1", "NVIDIA H200")
    assert (card.memory_used_bytes, card.memory_total_bytes) == (644874240, 150754820096)


def test_details_are_cut_and_made_printable() -> None:
    assert read(detail="a\n\x1b[31mb" + "x" * 500).detail == "a[31mb" + "x" * 192


@pytest.mark.parametrize(
    ("stage", "before", "over"),
    [("checking", True, False), ("warming", True, False), ("serving", False, False), ("stopping", False, True)],
)
def test_stages_are_of_a_start_or_of_an_end(stage: str, before: bool, over: bool) -> None:
    told = read(stage=stage)
    assert (told.is_before_serving, told.is_over) == (before, over)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": True},
        {"stage": "dancing"},
        {"stage": None},
        {"since": "now"},
        {"since": float("nan")},
        {"since": -1},
        {"progress": 43},
        {"progress": "0.4"},
        {"detail": 5},
        {"engines": None},
        {"cards": None},
        {"cards": [CARD] * (MOST_CARDS + 1)},
        {"cards": [{**CARD, "memory_used_bytes": -1}]},
        {"cards": [{**CARD, "memory_total_bytes": 0}]},
        {"cards": [{**CARD, "memory_total_bytes": 1e10}]},
        {"cards": [{**CARD, "name": None}]},
        {"engines": [ENGINE, ENGINE]},
        {"engines": [{**ENGINE, "port": number} for number in range(1, MOST_ENGINES + 2)]},
        {"engines": [{**ENGINE, "port": 0}]},
        {"engines": [{**ENGINE, "port": "8000"}]},
        {"engines": [{**ENGINE, "started_at": 1e300}]},
        {"engines": [{**ENGINE, "sequences": 0}]},
        {"engines": [{**ENGINE, "sequences": 1e9}]},
        {"engines": [{**ENGINE, "sequences": True}]},
        {"engines": [{key: value for key, value in ENGINE.items() if key != "stage"}]},
    ],
)
def test_what_is_out_of_bounds_is_no_status(changes: dict[str, Any]) -> None:
    with pytest.raises(BadStatus) as refused:
        read(**changes)
    assert next(iter(changes)) in str(refused.value)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"<html>", b"[" * 60_000, b'{"stage": "\xff', b'{"detail": "\\ud800"}']
)
def test_what_is_no_object_is_no_status(body: bytes) -> None:
    with pytest.raises(BadStatus, match="something else than a launcher's status"):
        read_status(200, body)


def test_status_that_was_cut_at_the_limit_is_none() -> None:
    with pytest.raises(BadStatus, match="bytes or more"):
        read_status(200, json.dumps(SOUND).encode().ljust(STATUS_BYTES))


def test_faults_repeat_nothing_of_what_came() -> None:
    with pytest.raises(BadStatus) as refused:
        read(news="hidden", engines=[{"hidden": "hidden"}])
    assert "hidden" not in str(refused.value)
    with pytest.raises(BadStatus, match="answered with 404"):
        read_status(404, b"hidden")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("vllm", ("vllm", 8090)),
        ("vllm:1", ("vllm", 1)),
        ("[::1]", ("::1", 8090)),
        ("[::1]:1", ("::1", 1)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
    ],
)
def test_names_are_split(name: str, place: tuple[str, int]) -> None:
    assert host_and_port(name, 8090) == place


def test_addresses_become_base_urls() -> None:
    assert base_url("10.0.0.1", 8000) == "http://10.0.0.1:8000"
    assert base_url("fd00::1", 8000) == "http://[fd00::1]:8000"
