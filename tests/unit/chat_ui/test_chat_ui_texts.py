"""Two languages, no sentence missing."""

import dataclasses
import string

import pytest
from chat_ui import errors
from chat_ui.engine_state import STAGES
from chat_ui.errors import ChatError
from chat_ui.root import SHIPPED
from chat_ui.sampling import PRESET_NAMES
from chat_ui.starters import starters_for
from chat_ui.texts import CHINESE, ENGLISH, Texts, explain, texts_for

ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ChatError)]
MAPPINGS = ("presets", "stages")
# The same in both: a term, and the gap between two sentences.
ALIKE = {"top_p", "between_sentences"}
FIELDS = [field.name for field in dataclasses.fields(Texts) if field.name not in {*MAPPINGS, *ALIKE}]


def blanks(text: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("field", FIELDS)
def test_both_languages_say_it_with_the_same_blanks(field: str) -> None:
    chinese, english = getattr(CHINESE, field), getattr(ENGLISH, field)
    assert chinese != english
    assert english.isascii()
    assert not chinese.isascii()
    assert blanks(chinese) == blanks(english)


@pytest.mark.parametrize("field", MAPPINGS)
def test_both_languages_name_the_same_things(field: str) -> None:
    chinese, english = getattr(CHINESE, field), getattr(ENGLISH, field)
    assert list(chinese) == list(english)
    assert all(english.values())
    assert not any(text.isascii() for text in chinese.values())


def test_every_stage_and_every_preset_has_a_name() -> None:
    assert tuple(ENGLISH.stages) == STAGES
    assert tuple(ENGLISH.presets) == PRESET_NAMES


def test_both_languages_have_the_same_starters() -> None:
    assert [starter.icon for starter in starters_for("zh")] == [starter.icon for starter in starters_for("en")]
    for starter in (*starters_for("zh"), *starters_for("en")):
        assert (SHIPPED / starter.icon.removeprefix("/")).is_file()


def test_time_to_wait_runs_out_in_the_explanation() -> None:
    error = errors.RateLimited(retry_after_seconds=9)
    assert "9" in explain(error, ENGLISH)
    assert "4" in explain(error, ENGLISH, 4)
    assert explain(error, ENGLISH, 0).endswith(ENGLISH.retry_now)
    assert ENGLISH.retry_now not in explain(errors.RateLimited(), ENGLISH, 0)


@pytest.mark.parametrize("texts", [CHINESE, ENGLISH], ids=["zh", "en"])
@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_explained_with_its_id_and_its_wait(kind: type[ChatError], texts: Texts) -> None:
    text = explain(kind("no a:b", request_id="chat-7", retry_after_seconds=9), texts)
    assert "`chat-7`" in text
    assert "9" in text
    assert "{" not in text


def test_different_errors_read_differently() -> None:
    assert len({explain(kind(), ENGLISH) for kind in ERRORS}) == len(ERRORS)


def test_the_engines_own_words_are_shown_whole() -> None:
    assert r"bad a\:b" in explain(errors.RequestRefused("bad a:b"), ENGLISH)


def test_a_fault_of_the_page_says_nothing_of_its_inside() -> None:
    assert explain(RuntimeError("/app/secret"), ENGLISH) == ENGLISH.internal


@pytest.mark.parametrize(
    ("tag", "texts"),
    [
        ("zh-CN", CHINESE),
        ("zh", CHINESE),
        ("zh-Hant-TW", CHINESE),
        ("en-US", ENGLISH),
        ("fr", ENGLISH),
        (None, ENGLISH),
    ],
)
def test_language_follows_the_browser(tag: str | None, texts: Texts) -> None:
    assert texts_for(tag) is texts
