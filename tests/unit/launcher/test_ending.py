"""From what was seen to one line that says why, and what to do."""

from signal import Signals

import pytest
from launcher import errors
from launcher.settings import Settings
from launcher.supervision.card import choose
from launcher.supervision.ending import explain
from launcher.supervision.outcome import Cause, Kind, Outcome, Scene
from launcher.supervision.xids import XIDS, meaning


def outcome(cause: Cause, *lines: str, killed: bool = False, notes: tuple[str, ...] = ()) -> Outcome:
    """One engine's end after 12 s."""
    return Outcome(cause, Scene(12.3, 0.0, ("loading",)), killed, {"engine 1": lines}, notes)


ENDED = Cause(Kind.ENDED, 0, 1)


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (outcome(Cause(Kind.ENDED, 0, -9)), errors.EngineEnded, ["engine 1", "12 s", "SIGKILL"]),
        (outcome(Cause(Kind.LATE, 0)), errors.StartTimeout, ["while loading", "ENGINE_START_TIMEOUT_SECONDS"]),
        (outcome(Cause(Kind.STALLED, 0, still_seconds=60.2)), errors.EngineStalled, ["60 s", "ENGINE_STALL_SECONDS"]),
        (
            outcome(Cause(Kind.STOPPED, signal=Signals.SIGTERM), killed=True),
            errors.EngineKilled,
            ["ENGINE_SHUTDOWN_TIMEOUT_SECONDS"],
        ),
        (outcome(Cause(Kind.CARD, fault=errors.CardFault("Xid 79"))), errors.CardFault, ["Xid 79"]),
        (
            outcome(ENDED, "(EngineCore pid=7) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
            errors.OutOfMemory,
            ["Tried to allocate", "ENGINE_VRAM_GB"],
        ),
        (
            outcome(ENDED, "ValueError: Free memory on device cuda:0 (1/80 GiB) on startup is less than desired GPU"),
            errors.OutOfMemory,
            ["1/80 GiB", "ENGINE_KV_CACHE_GB"],
        ),
        (
            outcome(
                ENDED,
                "E ValueError: the root",
                "E RuntimeError: Engine core initialization failed. See root cause above",
            ),
            errors.EngineEnded,
            ["ValueError: the root"],
        ),
        (
            outcome(
                ENDED,
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
                "  Value error, the model is too long [type=value_error, input_value=ArgsKwargs((), {}), input_type=X]",
            ),
            errors.EngineEnded,
            ["code 1: Value error: the model is too long; see its log"],
        ),
        (
            outcome(
                Cause(Kind.ENDED, 0, -9),
                "(APIServer pid=7) WARNING 11-30 13:03:17 [system_utils.py:255] errors like `OSError: [Errno 24] Too"
                " many open files`. Consider increasing with ulimit -n",
            ),
            errors.EngineEnded,
            ["by SIGKILL; see its log"],
        ),
        (outcome(ENDED, notes=("Xid 31 on card",)), errors.EngineEnded, ["The driver had said: Xid 31"]),
    ],
)
def test_each_end_has_its_error(found: Outcome, kind: type[errors.LauncherError], words: list[str]) -> None:
    error = explain(found, Settings(), 0)
    assert type(error) is kind
    assert all(word in str(error) for word in words)
    assert "\n" not in str(error)


def test_a_kill_for_want_of_memory_is_told_apart() -> None:
    error = explain(outcome(ENDED), Settings(), 1)
    assert isinstance(error, errors.OutOfMemory)
    assert "STACK_ENGINE_MEMORY" in str(error)


def test_a_stop_on_request_is_no_error() -> None:
    assert explain(outcome(Cause(Kind.STOPPED, 0, 1, Signals.SIGTERM)), Settings(), 0) is None


def test_a_program_of_ones_own_is_not_the_cards_fault() -> None:
    assert [number for number in (13, 31, 43, 45, 68, 63, 154, 9999) if meaning(number).fatal] == []
    assert all(meaning(number).fatal for number in (48, 64, 74, 79, 94, 95, 119, 120, 140))
    assert all(known.meaning and known.cure for known in XIDS.values())


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ({"0"}, ["GPU-aa1"]),
        ({"GPU-b"}, ["GPU-bb2"]),
        ({"1", "0"}, ["GPU-aa1", "GPU-bb2"]),
        ({"MIG-7"}, ["GPU-aa1", "GPU-bb2"]),
    ],
)
def test_the_cards_of_the_engines_are_watched(names: set[str], chosen: list[str]) -> None:
    assert list(choose({"GPU-aa1": 1, "GPU-bb2": 2}, names)) == chosen
