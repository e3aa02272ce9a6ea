"""Checkpoints of other kinds, made on the spot: a mixture of experts, and the demo model quantized."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launcher import checkpoint

from .conftest import PYTHON, ROOT, Engine

pytestmark = pytest.mark.engine


def make(kind: str, folder: Path) -> Path:
    """Make a checkpoint by the script that the project has for it."""
    subprocess.run([PYTHON, ROOT / "models/tiny/make.py", kind, folder], timeout=60, check=True)
    return folder


@contextmanager
def serving(folder: Path, log: Path, **settings: str) -> Iterator[Engine]:
    started = Engine(log, ENGINE_MODEL=str(folder), ENGINE_SERVED_NAME="ernie-demo", **settings)
    try:
        started.wait_until_healthy()
        yield started
    finally:
        started.end()


def test_a_mixture_of_experts_answers(tmp_path: Path) -> None:
    folder = make("moe", tmp_path / "moe")
    found = checkpoint.inspect(folder)
    assert found.is_moe
    assert found.experts == 8
    assert found.warnings == ()
    with serving(folder, tmp_path / "log") as engine:
        answer = engine.chat("你好", max_tokens=8, ignore_eos=True)
    # Its weights are random, so the words mean nothing; that they come is the test.
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["choices"][0]["message"]["content"]


def test_a_quantized_checkpoint_answers_like_the_model_it_was_made_of(tmp_path: Path) -> None:
    folder = make("awq", tmp_path / "awq")
    assert checkpoint.inspect(folder).quantization == "awq"
    # In float32, the plan's type for small CPUs, vLLM has no kernels for it.
    with serving(folder, tmp_path / "log", ENGINE_DTYPE="bfloat16") as engine:
        answer = engine.chat("你好")
    assert answer["choices"][0]["message"]["content"].startswith("你好")
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("kind", ["gptq", "fp8", "compressed-tensors"])
def test_the_others_are_whole(tmp_path: Path, kind: str) -> None:
    """Two of them start like AWQ, FP8 has no kernel in vLLM's CPU build (models/tiny/README.md)."""
    found = checkpoint.inspect(make(kind, tmp_path / kind))
    assert found.quantization == kind
    assert found.warnings == ()
