"""The settings panel: what a person sees of their wishes, and what they change."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import chainlit as cl
from chainlit.input_widget import Select, Slider, Switch, TextInput

from chat_ui.sampling import (
    MAX_SYSTEM_PROMPT_CHARACTERS,
    REPETITION_PENALTY,
    TEMPERATURE,
    TOP_P,
    Bounds,
    Wishes,
)
from chat_ui.texts import Texts


class Panel:
    """The panel of one page: `wishes` is what holds."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        # What the open panel was last told to show.
        self._draft = wishes

    async def show(self, texts: Texts) -> None:
        """Send what holds."""
        self._draft = self.wishes
        await _widgets(self.wishes, texts).send()

    async def edit(self, values: Mapping[str, Any], texts: Texts) -> None:
        """Follow a change in the open panel: a preset that is chosen moves the sliders under it."""
        seen = self.wishes.read(values)
        # A panel that was closed without saving shows what holds again, and says nothing of it.
        reopened = seen.sampling == self.wishes.sampling and seen.preset != self.wishes.preset
        chosen = seen.preset != self._draft.preset or (reopened and seen != seen.with_preset())
        if chosen:
            self._draft = seen.with_preset()
            await _widgets(self._draft, texts).refresh()

    async def save(self, values: Mapping[str, Any], texts: Texts) -> None:
        """Take what was chosen, and say so, or why not; numbers that were moved are no preset's any more."""
        seen = self.wishes.read(values)
        shown = self._draft if seen.preset == self._draft.preset else self.wishes
        if seen.sampling != shown.sampling:
            seen = replace(seen, preset="custom")
        length, limit = len(seen.system_prompt), MAX_SYSTEM_PROMPT_CHARACTERS
        if length > limit:
            seen = replace(seen, system_prompt=self.wishes.system_prompt)
            refusal = texts.system_prompt_too_long.format(length=length, limit=limit)
            await cl.context.emitter.send_toast(refusal, "error")
        else:
            await cl.context.emitter.send_toast(texts.settings_saved, "success")
        self.wishes = seen
        await self.show(texts)


def _widgets(wishes: Wishes, texts: Texts) -> cl.ChatSettings:
    def slider(name: str, label: str, hint: str, bounds: Bounds, value: float) -> Slider:
        return Slider(
            id=name, label=label, tooltip=hint, min=bounds.least, max=bounds.most, step=bounds.step, initial=value
        )

    sampling = wishes.sampling
    return cl.ChatSettings(
        [
            TextInput(
                id="system_prompt",
                label=texts.system_prompt,
                placeholder=texts.system_prompt_hint,
                initial=wishes.system_prompt,
                multiline=True,
            ),
            Select(
                id="preset",
                label=texts.preset,
                items={label: name for name, label in texts.presets.items()},
                initial_value=wishes.preset,
                description=texts.preset_hint,
            ),
            slider("temperature", texts.temperature, texts.temperature_hint, TEMPERATURE, sampling.temperature),
            slider("top_p", texts.top_p, texts.top_p_hint, TOP_P, sampling.top_p),
            slider(
                "repetition_penalty",
                texts.repetition_penalty,
                texts.repetition_penalty_hint,
                REPETITION_PENALTY,
                sampling.repetition_penalty,
            ),
            slider("max_tokens", texts.max_tokens, texts.max_tokens_hint, wishes.token_bounds, wishes.max_tokens),
            Switch(id="show_figures", label=texts.show_figures, initial=wishes.show_figures),
        ]
    )
