"""The numbers under an answer: how soon it began, how fast it came, what it cost."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from chat_ui.gateway import Usage
from chat_ui.texts import Texts

# What comes within less, however much it is, came in a packet or two: the time between says nothing of the engine.
SHORTEST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Figures:
    """What one answer took; tokens are the engine's own figures, None where it ended before they came."""

    first_token_seconds: float
    tokens_per_second: float | None
    usage: Usage | None

    @classmethod
    def kept(cls, record: Mapping[str, Any]) -> Self:
        """Return what a `record` says."""
        usage = record["usage"]
        return cls(record["first_token_seconds"], record["tokens_per_second"], Usage(**usage) if usage else None)

    def record(self) -> dict[str, Any]:
        """Return the same for JSON."""
        return asdict(self)

    def short(self, texts: Texts) -> str:
        """Return one line for the row under the answer."""
        parts = [texts.figure_start.format(seconds=self.first_token_seconds)]
        if self.tokens_per_second is not None:
            parts.append(texts.figure_speed.format(speed=self.tokens_per_second))
        if self.usage:
            parts.append(texts.figure_tokens.format(tokens=self.usage.prompt_tokens + self.usage.completion_tokens))
        return " · ".join(parts)

    def explained(self, texts: Texts) -> str:
        """Return the same in a sentence, prompt and answer apart."""
        sentences = [texts.figures_start.format(seconds=self.first_token_seconds)]
        if self.usage:
            sentences.append(
                texts.figures_tokens.format(prompt=self.usage.prompt_tokens, answer=self.usage.completion_tokens)
            )
        if self.tokens_per_second is not None:
            sentences.append(texts.figures_speed.format(speed=self.tokens_per_second))
        return texts.between_sentences.join(sentences)


class Stopwatch:
    """Times one answer from the question on; waiting for the engine counts, as the person waits too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_at = clock()
        self._first_at: float | None = None
        self._last_at = 0.0

    def note_words(self) -> None:
        """Words have come."""
        self._last_at = self._clock()
        if self._first_at is None:
            self._first_at = self._last_at

    def figures(self, usage: Usage | None) -> Figures | None:
        """Return the figures of an answer that is over; None where not a word came."""
        if self._first_at is None:
            return None
        seconds = self._last_at - self._first_at
        # The first token is what the time begins with.
        later_tokens = usage.completion_tokens - 1 if usage else 0
        speed = later_tokens / seconds if later_tokens > 0 and seconds >= SHORTEST_SECONDS else None
        return Figures(self._first_at - self._asked_at, speed, usage)
