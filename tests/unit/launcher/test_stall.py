"""Standing still is measured in time that this process was awake for, and idleness is no stall."""

from launcher.supervision.stall import Stillness

BUSY = {b"num_requests_running": 1.0, b"generation_tokens_total": 7.0}
IDLE = {b"num_requests_running": 0.0, b"generation_tokens_total": 7.0}


def after(
    steps: int, figures: dict[bytes, float] | None, *, pulse_at: int | None = None, step: float = 1.0
) -> Stillness:
    """Stillness with a limit of 12 s after one reading more than `steps`."""
    stillness = Stillness(12, longest_step=3)
    for number in range(steps + 1):
        stillness.note(figures, number * step, pulsed=number == pulse_at)
    return stillness


def test_a_busy_engine_that_stands_still_is_asked_and_then_over() -> None:
    assert not after(3, BUSY).is_doubtful
    assert after(4, BUSY).is_doubtful
    assert not after(11, BUSY).is_over
    assert after(12, BUSY).is_over


def test_an_idle_engine_is_asked_after_the_limit_and_over_after_another() -> None:
    assert not after(11, IDLE).is_doubtful
    assert after(12, IDLE).is_doubtful
    assert not after(23, IDLE).is_over
    assert after(24, IDLE).is_over


def test_no_answer_is_no_movement() -> None:
    assert after(12, None).is_over


def test_an_answer_to_a_pulse_is_life() -> None:
    assert not after(22, BUSY, pulse_at=11).is_over
    assert after(23, BUSY, pulse_at=11).is_over
    assert not after(23, IDLE, pulse_at=12).is_doubtful


def test_any_figure_that_moves_is_life() -> None:
    stillness = after(11, BUSY)
    stillness.note({**BUSY, b"kv_cache_usage_perc": 0.5}, 12, pulsed=False)
    assert stillness.seconds == 0


def test_a_pause_of_this_process_is_no_stall() -> None:
    stillness = after(2, BUSY)
    stillness.note(BUSY, 10_000, pulsed=False)
    assert stillness.seconds == 5
