"""How the engine is to choose its words: a person's wishes, within the gateway's bounds, and presets of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

MAX_SYSTEM_PROMPT_CHARACTERS = 4000
SHORT_ANSWER_TOKENS = 16

PresetName = Literal["model", "precise", "balanced", "creative", "custom"]
PRESET_NAMES: tuple[PresetName, ...] = get_args(PresetName)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a number may be, and the step between two choices of it."""

    least: float
    most: float
    step: float

    def clamp(self, value: object, otherwise: float) -> float:
        """Return the nearest allowed number; `otherwise` for what is no finite number."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return otherwise
        # Sliders count in floats: 0.1 + 0.2 shall be 0.3.
        return round(min(max(float(value), self.least), self.most), 3)


# Inside of what the gateway's policy accepts. Below 0.05 of the mass nothing changes any more; above 1.5 a penalty
# makes a small model avoid the words it needs.
TEMPERATURE = Bounds(0.0, 2.0, 0.05)
TOP_P = Bounds(0.05, 1.0, 0.05)
REPETITION_PENALTY = Bounds(1.0, 1.5, 0.01)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Three numbers of vLLM's; a penalty of 1 changes nothing."""

    temperature: float
    top_p: float
    repetition_penalty: float


# A small model repeats itself soon: the warmer it samples, the more a slight penalty helps.
PRESETS: Mapping[PresetName, Sampling] = {
    "precise": Sampling(0.0, 1.0, 1.0),
    "balanced": Sampling(0.7, 0.9, 1.03),
    "creative": Sampling(1.0, 0.95, 1.08),
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What one person has set. With the preset `model` the three numbers are not sent: the model's own apply."""

    preset: PresetName
    sampling: Sampling
    max_tokens: int
    most_tokens: int
    show_figures: bool
    system_prompt: str = ""

    @classmethod
    def at_first(cls, preset: PresetName, *, max_tokens: int, show_figures: bool) -> "Wishes":
        """Return what holds until a person sets something else; `max_tokens` is also the most they may choose."""
        sampling = PRESETS.get(preset, PRESETS["balanced"])
        return cls(preset, sampling, max_tokens, most_tokens=max_tokens, show_figures=show_figures)

    @property
    def token_bounds(self) -> Bounds:
        """From a short sentence to the operator's limit."""
        least = min(SHORT_ANSWER_TOKENS, self.most_tokens)
        return Bounds(least, self.most_tokens, least)

    @property
    def parameters(self) -> dict[str, float]:
        """The fields for a request; empty where the model's own numbers apply."""
        if self.preset == "model":
            return {}
        return {
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "repetition_penalty": self.sampling.repetition_penalty,
        }

    def with_preset(self) -> "Wishes":
        """Take the numbers of the preset; those that are there stay where it has none."""
        return replace(self, sampling=PRESETS.get(self.preset, self.sampling))

    def read(self, values: Mapping[str, Any]) -> "Wishes":
        """Return what a panel says; what is out of bounds is brought in, what is no value leaves what holds."""
        sampling = Sampling(
            TEMPERATURE.clamp(values.get("temperature"), self.sampling.temperature),
            TOP_P.clamp(values.get("top_p"), self.sampling.top_p),
            REPETITION_PENALTY.clamp(values.get("repetition_penalty"), self.sampling.repetition_penalty),
        )
        # An empty field comes as null.
        system_prompt = values.get("system_prompt", self.system_prompt) or ""
        show_figures = values.get("show_figures")
        return replace(
            self,
            preset=next((name for name in PRESET_NAMES if name == values.get("preset")), self.preset),
            sampling=sampling,
            max_tokens=int(self.token_bounds.clamp(values.get("max_tokens"), self.max_tokens)),
            show_figures=show_figures if isinstance(show_figures, bool) else self.show_figures,
            system_prompt=system_prompt.strip() if isinstance(system_prompt, str) else self.system_prompt,
        )
