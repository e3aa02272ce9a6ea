"""Every known trouble by a recording of it, and none of them in the recordings of a healthy stack."""

import re
from pathlib import Path

import pytest

from ops.doctor.age import Age
from ops.doctor.diagnosis import diagnose
from ops.doctor.signature import Signature, Source, Trouble, Weight
from ops.doctor.signatures import ALL

HERE = Path(__file__).parent
RECORDINGS = sorted((HERE / "recordings").glob("*.txt"))


def read(path: Path) -> tuple[Source, list[str]]:
    """Return where a recording was seen, and its lines; its head also says where it comes from."""
    at, origin, *lines = path.read_text(encoding="utf-8").splitlines()
    assert origin.startswith("# from: ")
    return Source(at.removeprefix("# at: ")), lines


def healthy() -> dict[Source, list[str]]:
    """Return what `make demo` left and said on a host without a card, while it answered."""
    return {Source(path.stem): path.read_text(encoding="utf-8").splitlines() for path in (HERE / "healthy").iterdir()}


def test_every_signature_has_its_recording_and_every_recording_its_signature() -> None:
    ids = [signature.id for signature in ALL]
    assert len(ids) == len(set(ids))
    assert {path.stem for path in RECORDINGS} == set(ids)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_shows_its_trouble_and_no_other(path: Path) -> None:
    source, lines = read(path)
    finding, *others = diagnose({source: lines}, ALL, answers=False)
    assert finding.signature.id == path.stem
    assert others == []
    assert finding.source is source
    # What a pattern's groups do not fill would be shown in braces.
    assert not re.search(r"[{}]", finding.cause + finding.cure)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_is_found_among_a_healthy_stacks_lines(path: Path) -> None:
    source, lines = read(path)
    evidence = healthy()
    evidence[source] = [*evidence.get(source, []), *lines, *evidence.get(source, [])]
    found = {finding.signature.id for finding in diagnose(evidence, ALL, answers=False)}
    # An echo is told only when nothing else is.
    if next(signature for signature in ALL if signature.id == path.stem).weight is not Weight.ECHO:
        assert found == {path.stem}


def test_a_healthy_stack_shows_nothing() -> None:
    evidence = healthy()
    assert set(evidence) >= {Source.ENGINE, Source.GATEWAY, Source.PAGE, Source.EDGE, Source.STATES, Source.HOST}
    assert all(evidence[source] for source in (Source.ENGINE, Source.GATEWAY, Source.PAGE, Source.EDGE))
    assert diagnose(evidence, ALL, answers=True) == []
    # Not even if the question failed for a reason of its own: only echoes of it are left.
    left = diagnose(evidence, ALL, answers=False)
    assert all(finding.signature.weight is Weight.ECHO for finding in left)


def test_all_kinds_of_trouble_are_known() -> None:
    assert {signature.kind for signature in ALL} == set(Trouble)
    assert len(ALL) >= 40


def test_what_only_a_log_shows_is_past_while_the_stack_answers() -> None:
    signature = Signature(
        "x", Trouble.START, (Source.ENGINE, Source.HOST), re.compile("bad (?P<n>\\d)"), "is {n}", "do"
    )
    [finding] = diagnose({Source.ENGINE: ["bad 1", "good", "bad 2"]}, [signature], answers=True)
    assert (finding.is_past, finding.cause, finding.count) == (True, "is 2", 2)
    [finding] = diagnose({Source.HOST: ["bad 3"]}, [signature], answers=True)
    assert finding.is_past is False


def test_what_is_long_over_explains_nothing_while_the_stack_does_not_answer() -> None:
    old = Signature("old", Trouble.START, (Source.ENGINE, Source.STATES), re.compile("bad"), "", "")
    echo = Signature("echo", Trouble.START, (Source.STATES,), re.compile("down"), "", "", Weight.ECHO)
    evidence = {Source.ENGINE: ["bad", "good"], Source.STATES: ["down"]}
    ages = {Source.ENGINE: [Age(90000.0, is_past=True), Age(1.0, is_past=False)]}
    found = diagnose(evidence, [old, echo], answers=False, ages=ages)
    assert [(f.signature.id, f.is_past, f.seconds_ago) for f in found] == [
        ("echo", False, None),
        ("old", True, 90000.0),
    ]
    # Once more within the hour, or seen elsewhere now, it is present.
    again = {Source.ENGINE: ["bad", "bad"], Source.STATES: ["down"]}
    assert [f.signature.id for f in diagnose(again, [old, echo], answers=False, ages=ages)] == ["old"]
    now = {**evidence, Source.STATES: ["down", "bad"]}
    [finding] = diagnose(now, [old, echo], answers=False, ages=ages)
    assert (finding.source, finding.is_past) == (Source.STATES, False)


def test_an_echo_is_told_only_alone() -> None:
    exact = Signature("exact", Trouble.START, (Source.ENGINE,), re.compile("root"), "", "")
    echo = Signature("echo", Trouble.START, (Source.ENGINE,), re.compile("failed"), "", "", Weight.ECHO)
    both = {Source.ENGINE: ["root", "failed"]}
    assert [f.signature.id for f in diagnose(both, [exact, echo], answers=False)] == ["exact"]
    assert [f.signature.id for f in diagnose({Source.ENGINE: ["failed"]}, [exact, echo], answers=False)] == ["echo"]
    assert diagnose({Source.ENGINE: ["failed"]}, [exact, echo], answers=True) == []


def test_of_consequences_those_seen_now_are_told() -> None:
    old = Signature("old", Trouble.START, (Source.EDGE,), re.compile("refused"), "", "", Weight.ECHO)
    now = Signature("now", Trouble.START, (Source.STATES,), re.compile("down"), "", "", Weight.ECHO)
    evidence = {Source.EDGE: ["refused"], Source.STATES: ["down"]}
    assert [f.signature.id for f in diagnose(evidence, [old, now], answers=False)] == ["now"]
