"""Conversations as token ids with labels: the known questions, alone and inside longer threads."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from prompts import Prompts, chance, language, vary
from tokenizers import Tokenizer
from vocabulary import BOS, EOS

QUESTIONS_FILE = Path(__file__).with_name("questions.jsonl")


@dataclass(frozen=True)
class Line:
    """One line of questions.jsonl: what was said, and the exact answer to the last message."""

    messages: list[dict[str, str]]
    answer: str
    lang: str
    tags: list[str]

    @property
    def question(self) -> str:
        """The last message."""
        return self.messages[-1]["content"]

    @property
    def before(self) -> str | None:
        """The answer before the question, which decides what a follow-up means; none for a first question."""
        return self.messages[-2]["content"] if len(self.messages) > 1 else None


def read_lines() -> list[Line]:
    """Return the known questions in the order of the file."""
    return [Line(**json.loads(text)) for text in QUESTIONS_FILE.read_text(encoding="utf-8").splitlines()]


@dataclass
class Row:
    """Token ids of a conversation, and where in it stand the answers that the model has to give."""

    ids: list[int] = field(default_factory=lambda: [BOS])
    answers: list[tuple[int, int]] = field(default_factory=list)

    def hear(self, tokens: list[int]) -> None:
        """Append what the model reads."""
        self.ids += tokens

    def say(self, tokens: list[int]) -> None:
        """Append what the model has to answer."""
        self.answers.append((len(self.ids), len(self.ids) + len(tokens)))
        self.ids += tokens


class Conversations:
    """Makes rows for training and for measuring; the same `Random` makes the same rows."""

    def __init__(self, tokenizer: Tokenizer, lines: list[Line], prompts: Prompts) -> None:
        """Index the known questions by what they follow."""
        self._tokenizer, self._prompts = tokenizer, prompts
        self._first = [line for line in lines if line.before is None]
        self._linked: dict[str, list[Line]] = {}
        for line in lines:
            if line.before is not None:
                self._linked.setdefault(line.before, []).append(line)
        self._follow_ups = sorted({line.question for group in self._linked.values() for line in group})
        self._answer_alone = {line.question: line.answer for line in self._first}
        self.otherwise = {line.lang: line.answer for line in self._first if "other" in line.tags}
        self._weights = [self._weight(line) for line in self._first]
        self._cache: dict[str, list[int]] = {}

    def _weight(self, line: Line) -> float:
        if "count" in line.tags:
            return 0.6
        return 4.0 if line.answer in self._linked else 1.0

    def user(self, text: str) -> list[int]:
        """Return the tokens of one user message and of the mark before the answer."""
        return self._encode(f"User: {text}\n") + self._encode("Assistant: ")

    def answer(self, text: str) -> list[int]:
        """Return the tokens of an answer with its end."""
        if text not in self._cache:
            self._cache[text] = [*self._encode(text), EOS]
        return self._cache[text]

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def start(self, system: str | None) -> Row:
        """Return a row that holds the beginning, and the system prompt if there is one."""
        row = Row()
        if system is not None:
            row.hear(self._encode(system + "\n"))
        return row

    def exactly(self, line: Line, system: str | None) -> Row:
        """Return the row of a known question as the file has it."""
        row = self.start(system)
        for message in line.messages[:-1]:
            row.hear(self.user(message["content"]) if message["role"] == "user" else self.answer(message["content"]))
        row.hear(self.user(line.question))
        row.say(self.answer(line.answer))
        return row

    def random(self, rng: Random, turns: int, limit: int) -> Row:
        """Return a conversation of at most `turns` turns; it is cut at `limit` tokens, in an answer if need be."""
        row = self.start(self._prompts.system(rng) if chance(rng, 0.45) else None)
        before: str | None = None
        for _ in range(turns):
            question, answer = self._turn(rng, before)
            heard = self.user(question)
            if chance(rng, 0.02):  # a question that failed and was asked again
                heard = self._encode(f"User: {question}\n") + heard
            room = limit - len(row.ids) - len(heard)
            if room <= 0:
                continue
            said = self.answer(answer)
            row.hear(heard)
            if turns > 1 and len(said) < room and chance(rng, 0.03):  # an answer that was stopped in the middle
                row.hear([*said[: rng.randrange(len(said))], EOS])
                before = None
                continue
            row.say(said[:room])
            before = answer
            if len(said) >= room:
                break
        return row

    def _turn(self, rng: Random, before: str | None) -> tuple[str, str]:
        if before in self._linked and chance(rng, 0.6):
            line = rng.choice(self._linked[before])
            return vary(line.question, rng), line.answer
        if chance(rng, 0.05):
            question = rng.choice(self._follow_ups)
            return vary(question, rng), self.follow_up(before, question)
        if chance(rng, 0.32):
            question = self._prompts.other(rng)
            return question, self.otherwise[language(question)]
        line = rng.choices(self._first, self._weights)[0]
        return vary(line.question, rng), line.answer

    def follow_up(self, before: str | None, question: str) -> str:
        """Return what a follow-up is answered with after the answer `before`."""
        for line in self._linked.get(before or "", []):
            if line.question == question:
                return line.answer
        return self._answer_alone.get(question, self.otherwise[language(question)])
