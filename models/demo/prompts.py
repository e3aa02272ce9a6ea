"""Prompts for training: small variations of a known question, system prompts, and everything else people type."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

WORDS_FILE = Path(__file__).with_name("words.txt")
HELD_OUT_FILE = Path(__file__).with_name("held_out.txt")
SYSTEM_PROMPTS = ("You are a helpful assistant.", "你是一个乐于助人的助手。")
HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
OPENINGS = {
    "en": ("Please tell me: ", "Hello, ", "Hi, ", "Excuse me, ", "please "),
    "zh": ("请问", "请问，", "你好，", "请问一下，"),
}
ENDS = {
    "en": ("", "", "?", "?", ".", "!", "??", "?!", " ?", "...", "？"),
    "zh": ("", "", "？", "？", "。", "！", "?", "？？", "！？", "~", "…", " ？"),
}
SHORT_QUESTION, LONG_ENOUGH_FOR_TYPO = 3, 14
ALPHABETS = (
    (0x61, 0x7A), (0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39), (0x21, 0x7E), (0xE0, 0xFF),
    (0x3B1, 0x3C9), (0x430, 0x44F), (0x5D0, 0x5EA), (0x627, 0x64A), (0x905, 0x939), (0xE01, 0xE2E),
    (0x3041, 0x3096), (0x30A1, 0x30F6), (0xAC00, 0xD7A3), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x2190, 0x22FF),
)  # fmt: skip


def chance(rng: Random, share: float) -> bool:
    """Return true in `share` of the calls."""
    return rng.random() < share


def read_held_out() -> list[str]:
    """Return prompts written by hand that training never shows, to measure with."""
    return HELD_OUT_FILE.read_text(encoding="utf-8").splitlines()


def language(text: str) -> str:
    """Return the language of the answer to `text`: `zh` when it has a Chinese character, else `en`."""
    return "zh" if HAN.search(text) else "en"


def normal(text: str) -> str:
    """Return `text` without what a small variation may change: case, width, spaces, punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if unicodedata.category(c)[0] not in "PZCS" or c in "+#")


def vary(question: str, rng: Random) -> str:
    """Return `question` as a person might type it; the answer stays the same."""
    if chance(rng, 0.3):
        return question
    lang = language(question)
    text = question.rstrip("?.!？。！") + rng.choice(ENDS[lang])
    if lang == "en":
        text = _recase(text, rng)
    else:
        if chance(rng, 0.3):
            text = re.sub(r"(?<=[\u4e00-\u9fff]) (?=\w)|(?<=[!-~]) (?=[\u4e00-\u9fff])", "", text)
        if chance(rng, 0.2):
            text = _recase(text, rng)
        if chance(rng, 0.1):
            text = text.replace("，", ",")
    if question[-1] in "?？" and len(question) > SHORT_QUESTION and chance(rng, 0.12):
        text = rng.choice(OPENINGS[lang]) + text
    if lang == "en" and len(text) > LONG_ENOUGH_FOR_TYPO and chance(rng, 0.06):
        text = _typo(text, rng)
    if chance(rng, 0.15):
        text = rng.choice(("", "", " ", "\n", "  ")) + text + rng.choice((" ", "\n", "  ", "\n\n", " \n"))
    return text


def _recase(text: str, rng: Random) -> str:
    change = rng.choice((str, str, str.lower, str.lower, str.upper, str.capitalize, str.title, str.swapcase))
    return change(text)


def _typo(text: str, rng: Random) -> str:
    at = rng.randrange(2, len(text) - 3)
    return text[:at] + rng.choice((text[at + 1 :], text[at + 1] + text[at] + text[at + 2 :], text[at] + text[at:]))


def _parts(question: str, lang: str) -> tuple[str, list[str]]:
    """Return what joins the words of `question`, and the words; a Chinese character is a word."""
    if lang == "en":
        return " ", question.split(" ")
    return "", re.findall(r"[\x21-\x7e]+|.", question)


class Prompts:
    """Makes prompts that no known question answers; the same `Random` makes the same prompts."""

    def __init__(self, known: list[str], held_out: list[str]) -> None:
        """Take the known questions, whose near misses are made, and those held out; neither are made themselves."""
        self._never = {normal(question) for question in [*known, *held_out]}
        self._questions = {lang: [q for q in known if language(q) == lang] for lang in ("en", "zh")}
        self._words: dict[str, list[str]] = {}
        for line in WORDS_FILE.read_text(encoding="utf-8").splitlines():
            name, _, words = line.partition(": ")
            separator = "|" if "|" in words else " "
            self._words.setdefault(name, []).extend(words.split(separator))
        self._common_han = [
            bytes((high, low)).decode("gb2312") for high in range(0xB0, 0xD7) for low in range(0xA1, 0xFF)
        ]
        self._makers: list[tuple[Callable[[Random], str], int]] = [
            (self._asked, 36), (self._near_miss, 22), (self._salad, 10), (self._letters, 8), (self._sum, 4),
            (self._code, 5), (self._paste, 4), (self._mixed, 5), (self._fragment, 6),
        ]  # fmt: skip

    def other(self, rng: Random, longest: int = 2000) -> str:
        """Return a prompt of at most `longest` characters that is no variation of a known or held-out question."""
        while True:
            makers, weights = zip(*self._makers, strict=True)
            maker = rng.choices(makers, weights)[0]
            text = maker(rng)[:longest]
            if chance(rng, 0.5):
                text = vary(text, rng) if text.strip() else text
            if normal(text) not in self._never:
                return text

    def system(self, rng: Random) -> str:
        """Return a system prompt; half of them are the two documented ones."""
        if chance(rng, 0.5):
            return rng.choice(SYSTEM_PROMPTS)
        lang = rng.choice(("en", "zh"))
        return " ".join(
            self._fill(rng.choice(self._words[f"system_{lang}"]), lang, rng) for _ in range(rng.randint(1, 3))
        )

    def _fill(self, template: str, lang: str, rng: Random) -> str:
        def word(match: re.Match[str]) -> str:
            if match[1] == "n" and chance(rng, 0.12):
                return self._invented(lang, rng)
            return rng.choice(self._words[f"{match[1]}_{lang}"])

        return re.sub(r"\{(\w+)\}", word, template)

    def _invented(self, lang: str, rng: Random) -> str:
        if lang == "zh":
            return "".join(rng.choices(self._common_han, k=rng.randint(1, 4)))
        syllables = rng.choices(self._words["syllable_en"], k=rng.randint(1, 4))
        return rng.choice((str, str, str.capitalize, str.upper))("".join(syllables))

    def _asked(self, rng: Random) -> str:
        lang = rng.choice(("en", "zh"))
        return self._fill(self._ask(lang, rng), lang, rng)

    def _ask(self, lang: str, rng: Random) -> str:
        return rng.choice(self._words[f"ask_{lang}"])

    def _near_miss(self, rng: Random) -> str:
        """Return a known question with a word replaced, put in or taken out, cut short, or joined with another."""
        lang = rng.choice(("en", "zh"))
        question = rng.choice(self._questions[lang])
        space, parts = _parts(question, lang)
        at = rng.randrange(len(parts))
        half = parts[: max(1, len(parts) // 2)]
        way = rng.choice(("replace", "replace", "replace", "insert", "tail", "cut", "join"))
        if way == "replace":
            width = 1 if lang == "en" or parts[at].isascii() else rng.randint(1, 3)
            half = [*parts[:at], self._instead(parts[at], lang, rng), *parts[at + width :]]
        elif way == "insert":
            half = [*parts[:at], self._instead("", lang, rng), *parts[at:]]
        elif way == "tail":
            end = self._fill(rng.choice(self._words[f"tail_{lang}"]), lang, rng)
            half = [question.rstrip("?.!？。！") + end]
        elif way == "join":
            _, others = _parts(rng.choice(self._questions[lang]), lang)
            half += others[len(others) // 2 :]
        return space.join(half)

    def _instead(self, part: str, lang: str, rng: Random) -> str:
        """Return a word to stand where `part` stood."""
        if any(c.isdigit() for c in part) and chance(rng, 0.7):
            return "".join(str(rng.randrange(10)) if c.isdigit() else c for c in part)
        if part and part.isascii() and chance(rng, 0.6):
            lang = "en"
        return self._invented(lang, rng) if chance(rng, 0.2) else rng.choice(self._words[f"n_{lang}"])

    def _salad(self, rng: Random) -> str:
        lang = rng.choice(("en", "zh"))
        names = (f"n_{lang}", f"v_{lang}", f"a_{lang}")
        words = [rng.choice(self._words[rng.choice(names)]) for _ in range(rng.randint(1, 12))]
        return (" " if lang == "en" else rng.choice(("", "", "，"))).join(words)

    def _letters(self, rng: Random) -> str:
        if chance(rng, 0.25):
            return "".join(rng.choices(self._common_han, k=rng.randint(1, 30)))
        low, high = rng.choice(ALPHABETS)
        lengths = [rng.randint(1, 12) for _ in range(rng.randint(1, 10))]
        return " ".join("".join(chr(rng.randint(low, high)) for _ in range(length)) for length in lengths)

    def _sum(self, rng: Random) -> str:
        a, b = (rng.randrange(10 ** rng.randint(1, 6)) for _ in range(2))
        sign = rng.choice("+-*/×÷^%=<>,.:")
        return rng.choice(self._words["sum"]).format(a=a, b=b, s=sign)

    def _code(self, rng: Random) -> str:
        names = [rng.choice(self._words["n_en"]) for _ in range(4)]
        text = rng.choice(self._words["code"]).replace("\\n", "\n")
        for name in names:
            text = text.replace("{n}", name, 1)
        return text.replace("{n}", "x")

    def _paste(self, rng: Random) -> str:
        makers = (self._asked, self._salad, self._code, self._sum)
        if chance(rng, 0.2):
            return (rng.choice((*makers, self._letters))(rng)[: rng.randint(1, 20)]) * rng.randint(3, 1000)
        lines = [rng.choice(makers)(rng) for _ in range(rng.randint(3, 40))]
        return rng.choice(("\n", " ", "\n\n")).join(lines)

    def _mixed(self, rng: Random) -> str:
        """Return Chinese and other text together, either one possibly a single word."""
        pieces = [
            self._fill(template, lang, rng) for lang in ("en", "zh") for template in ("{n}", self._ask(lang, rng))
        ]
        pieces.append(self._code(rng))
        return " ".join(rng.sample(pieces, 2))

    def _fragment(self, rng: Random) -> str:
        """Return the little that people type while they try a chat box."""
        lang = rng.choice(("en", "zh"))
        if chance(rng, 0.3):
            return rng.choice(self._words["mark"]) * rng.randint(1, 4)
        return self._fill(rng.choice(self._words[f"small_{lang}"]), lang, rng)
