"""The numbers under an answer."""

import json

import pytest
from chat_ui.figures import Figures, Stopwatch
from chat_ui.gateway import Usage
from chat_ui.texts import CHINESE, ENGLISH


def timed(*times: float) -> Stopwatch:
    """Return a watch that has seen words at these seconds after the question."""
    clock = iter([100.0, *(100.0 + seconds for seconds in times)])
    watch = Stopwatch(lambda: next(clock))
    for _ in times:
        watch.note_words()
    return watch


def test_speed_is_that_of_the_tokens_after_the_first() -> None:
    figures = timed(0.5, 1.0, 2.5).figures(Usage(12, 21))
    assert figures == Figures(0.5, pytest.approx(10.0), Usage(12, 21))  # type: ignore[arg-type]


def test_answer_without_words_has_none() -> None:
    assert timed().figures(Usage(5, 0)) is None


@pytest.mark.parametrize("usage", [None, Usage(3, 1)])
def test_no_speed_where_it_cannot_be_told(usage: Usage | None) -> None:
    figures = timed(0.25).figures(usage)
    assert figures is not None
    assert figures.tokens_per_second is None
    assert "0.25" in figures.short(ENGLISH)


@pytest.mark.parametrize(("last", "told"), [(0.349, False), (0.351, True)])
def test_no_speed_of_what_came_in_one_burst(last: float, told: bool) -> None:
    figures = timed(0.25, last).figures(Usage(3, 400))
    assert figures is not None
    assert (figures.tokens_per_second is not None) is told


@pytest.mark.parametrize("usage", [None, Usage(3, 40)])
def test_figures_come_back_from_their_record(usage: Usage | None) -> None:
    figures = timed(0.25, 1.0).figures(usage)
    assert figures is not None
    assert Figures.kept(json.loads(json.dumps(figures.record()))) == figures


def test_both_languages_tell_all_of_it() -> None:
    figures = Figures(0.123, 45.67, Usage(100, 85))
    assert figures.short(ENGLISH) == "first word 0.12 s · 45.7 tokens/s · 185 tokens"
    assert figures.short(CHINESE) == "首字 0.12 秒 · 每秒 45.7 词元 · 共 185 词元"
    for text in (figures.explained(ENGLISH), figures.explained(CHINESE)):
        for number in ("0.12", "45.7", "100", "85"):
            assert number in text
