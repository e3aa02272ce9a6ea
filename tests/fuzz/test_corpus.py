"""The inputs that atheris found worth keeping still hold, without atheris."""

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_hold(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert len(inputs) > 20
    for file in inputs:
        TARGETS[name](file.read_bytes())
