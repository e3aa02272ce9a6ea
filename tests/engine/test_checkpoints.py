"""The worst of broken checkpoints, refused by the real launcher in seconds, before vLLM is started."""

import time
from pathlib import Path

import pytest

from tests.fakes.checkpoints import FAULTS, change, copy_demo

from .conftest import run_launcher

pytestmark = pytest.mark.engine

WORST = (
    "shard cut",
    "a layer missing",
    "tokenizer of another model",
    "endless: no end named",
    "template that does not parse",
    "AWQ in name only",
    "special tokens not UTF-8",
)


@pytest.mark.parametrize("name", WORST)
def test_a_broken_one_is_refused_at_once(tmp_path: Path, name: str) -> None:
    folder, fault = copy_demo(tmp_path / "demo"), FAULTS[name]
    fault.break_it(folder)
    begin = time.monotonic()
    done = run_launcher("check", ENGINE_MODEL=str(folder))
    assert time.monotonic() - begin < 10
    assert done.returncode == 4, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("launcher: ")
    assert fault.fault in last
    assert fault.cure in last


def test_a_quantization_that_this_vllm_does_not_know(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "demo")
    change("config.json", quantization_config={"quant_method": "aqlm"})(folder)
    done = run_launcher("check", ENGINE_MODEL=str(folder))
    assert done.returncode == 4, done.stderr
    assert "does not know the quantization aqlm" in done.stderr


def test_what_is_tolerated_is_logged(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "demo")
    (folder / "generation_config.json").unlink()
    done = run_launcher("check", ENGINE_MODEL=str(folder), VLLM_ATTENTION_BACKEND="FLASHINFER", VLLM_USE_V1="1")
    assert done.returncode == 0, done.stderr
    assert "there is no generation_config.json" in done.stderr
    assert "VLLM_ATTENTION_BACKEND: vLLM has no such variable any more; --attention-backend" in done.stderr
