"""vLLM's parser, asked in a child; its answers are real in tests/engine/test_installed.py, its failures are not."""

import logging
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher.errors import BadSetting
from launcher.installation import arguments

WORDS = ("/some/model", "--stream-interval", "2")
Answer = Callable[..., None]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """What the child leaves behind; the list that comes back counts how often it was asked."""

    def make(status: int, stderr: str = "", *, hangs: bool = False) -> list[tuple[str, ...]]:
        asked: list[tuple[str, ...]] = []

        def run(words: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
            asked.append(tuple(words))
            if hangs:
                raise subprocess.TimeoutExpired(words, 1)
            return subprocess.CompletedProcess(words, status, "", stderr)

        monkeypatch.setattr(arguments.subprocess, "run", run)
        return asked

    return make


def test_a_refusal_is_told_in_the_parsers_own_words(answer: Answer, tmp_path: Path) -> None:
    asked = answer(2, "usage: vllm serve [...]\n  [model]\nvllm serve: error: argument --x: invalid\n  value: 'abc'\n")
    for _ in range(2):
        with pytest.raises(BadSetting) as caught:
            arguments.check(WORDS, {"VLLM_CACHE_ROOT": str(tmp_path)}, "0.33.0")
        refusal = "ENGINE_EXTRA_ARGS: vLLM 0.33.0 refuses it: argument --x: invalid value: 'abc'"
        assert str(caught.value) == refusal
    assert len(asked) == 2
    assert asked[0][-4:] == ("--model", *WORDS)


def test_what_was_good_is_asked_once_a_version(answer: Answer, tmp_path: Path) -> None:
    asked = answer(0)
    for environment in ({"VLLM_CACHE_ROOT": str(tmp_path)}, {"HOME": str(tmp_path)}):
        asked.clear()
        for version, words in (("0.33.0", WORDS), ("0.33.0", WORDS), ("0.34.0", WORDS), ("0.33.0", WORDS[:1])):
            arguments.check(words, environment, version)
        assert len(asked) == 3


@pytest.mark.parametrize(
    ("hangs", "says"),
    [(False, "could not be asked (ImportError: no such thing)"), (True, "gave no answer in 90 s")],
)
def test_a_parser_that_cannot_be_asked_is_no_fault_of_the_words(
    answer: Answer, tmp_path: Path, caplog: pytest.LogCaptureFixture, hangs: bool, says: str
) -> None:
    asked = answer(1, "Traceback\nImportError: no such thing\n", hangs=hangs)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            arguments.check(WORDS, {"VLLM_CACHE_ROOT": str(tmp_path)}, "0.33.0")
    assert len(asked) == 2
    assert says in caplog.messages[0]
    assert "unchecked" in caplog.messages[0]


def test_a_cache_that_cannot_be_written_is_told(
    answer: Answer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answer(0)
    (tmp_path / "file").touch()
    arguments.check(WORDS, {"VLLM_CACHE_ROOT": str(tmp_path / "file")}, "0.33.0")
    assert "cannot be kept for the next start" in caplog.messages[0]
