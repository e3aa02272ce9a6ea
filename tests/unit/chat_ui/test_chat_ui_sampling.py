"""What a panel may say, and what comes of it in a request."""

import math
from dataclasses import replace
from typing import Any

import pytest
from chat_ui.sampling import PRESETS, PresetName, Wishes

FIRST = Wishes.at_first("model", max_tokens=2048, show_figures=True)


def panel(wishes: Wishes, **changes: Any) -> dict[str, Any]:
    """Return what the panel sends for these wishes, with changes."""
    sampling = wishes.sampling
    return {
        "preset": wishes.preset,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "repetition_penalty": sampling.repetition_penalty,
        "max_tokens": float(wishes.max_tokens),
        "system_prompt": wishes.system_prompt or None,
        "show_figures": wishes.show_figures,
    } | changes


def test_models_own_numbers_are_not_sent() -> None:
    assert FIRST.parameters == {}


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_sends_its_numbers(preset: PresetName) -> None:
    wishes = replace(FIRST, preset=preset).with_preset()
    assert wishes.parameters == {
        "temperature": PRESETS[preset].temperature,
        "top_p": PRESETS[preset].top_p,
        "repetition_penalty": PRESETS[preset].repetition_penalty,
    }
    assert Wishes.at_first(preset, max_tokens=9, show_figures=False).parameters == wishes.parameters


def test_panel_that_changes_nothing_changes_nothing() -> None:
    assert FIRST.read(panel(FIRST)) == FIRST
    assert FIRST.read({}) == FIRST


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("temperature", 9, 2.0),
        ("temperature", -1, 0.0),
        ("temperature", 0.1 + 0.2, 0.3),
        ("top_p", 0, 0.05),
        ("top_p", 1.0000001, 1.0),
        ("repetition_penalty", 0, 1.0),
        ("repetition_penalty", 99.0, 1.5),
        *[("temperature", value, FIRST.sampling.temperature) for value in (math.nan, math.inf, "1", None, True, [])],
    ],
)
def test_numbers_stay_within_their_bounds(field: str, value: object, kept: float) -> None:
    assert getattr(FIRST.read(panel(FIRST, **{field: value})).sampling, field) == kept


@pytest.mark.parametrize(
    ("value", "kept"), [(256.0, 256), (256.7, 256), (1e9, 2048), (0, 16), (None, 2048), (math.nan, 2048)]
)
def test_tokens_are_whole_and_within_the_operators_limit(value: object, kept: int) -> None:
    wishes = FIRST.read(panel(FIRST, max_tokens=value))
    assert (wishes.max_tokens, type(wishes.max_tokens)) == (kept, int)


def test_smallest_limit_of_an_operator_leaves_one_choice() -> None:
    wishes = Wishes.at_first("model", max_tokens=1, show_figures=True)
    assert wishes.read(panel(wishes, max_tokens=50)).max_tokens == 1


@pytest.mark.parametrize(("value", "kept"), [(" 你好 ", "你好"), (None, ""), ("", ""), (5, "old")])
def test_system_prompt_is_a_text(value: object, kept: str) -> None:
    wishes = replace(FIRST, system_prompt="old")
    assert wishes.read(panel(wishes, system_prompt=value)).system_prompt == kept


def test_unknown_preset_and_odd_switch_leave_what_holds() -> None:
    assert FIRST.read(panel(FIRST, preset="wild", show_figures="no")) == FIRST
