"""Which quantizations run on which machine, and what the others are told."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from launcher.checkpoint import Checkpoint
from launcher.errors import BadSetting
from launcher.hardware import Hardware
from launcher.planning.plan import Plan, make
from launcher.settings import Settings

Machine = Callable[[str], Hardware]


# What the setting asks for and the checkpoint is, the machine, and what the plan says.
ALLOWED = [
    (("", "awq"), "a10", "awq, as the checkpoint is"),
    (("awq", "awq"), "a10", "awq, as the checkpoint is"),
    (("awq_marlin", "awq"), "a10", "awq_marlin, as the checkpoint is"),
    (("", "gptq"), "t4", "gptq, as the checkpoint is"),
    (("", "compressed-tensors"), "cpu-large", "compressed-tensors, as the checkpoint is"),
    (("", "fp8"), "h100", "fp8, as the checkpoint is"),
    (("", "fp8"), "a100-80gb", "this card has no FP8 arithmetic, so only memory is saved"),
    (("", "awq"), "cpu-small", "awq, as the checkpoint is"),
    (("", "newmethod"), "h100", "newmethod: not known here, vLLM decides"),
    (("fp8_per_block", ""), "cpu-large", "fp8_per_block, quantized while loading"),
    (("fp8", ""), "l4", "fp8_per_tensor, quantized while loading"),
    (("fp8_per_tensor", ""), "l4", "fp8_per_tensor, quantized while loading"),
    (("fp8_per_tensor", ""), "t4", "only memory is saved"),
]
REFUSED = [
    (("awq", ""), "a10", "ENGINE_QUANTIZATION: awq needs a checkpoint that was quantized so"),
    (("fp8_per_tensor", "awq"), "a10", "the checkpoint is quantized already (awq)"),
    (("gptq", "awq"), "a10", "the checkpoint is quantized already (awq)"),
    (("", "modelopt"), "t4", "modelopt needs compute capability 8.0 and Tesla T4 has 7.5"),
    (("", "modelopt"), "cpu-large", "modelopt needs an NVIDIA GPU"),
    (("fp8_per_tensor", ""), "cpu-small", "fp8_per_tensor needs an NVIDIA GPU; leave it empty"),
    (("fp8_per_tensor", ""), "cpu-large", "or use fp8_per_block"),
    (("fp8", ""), "cpu-large", "or use fp8_per_block"),
    (("fp8_per_block", ""), "cpu-small", "fp8_per_block needs an NVIDIA GPU or a CPU with AMX"),
    (("", "fp8"), "cpu-large", "fp8 needs an NVIDIA GPU; use another checkpoint"),
]


def _plan(machine: Machine, ernie: Checkpoint, method: tuple[str, str], name: str) -> Plan:
    asked, own = method
    hardware = machine(name)
    checkpoint = replace(ernie, quantization=own)
    return make(Settings(quantization=asked), hardware, checkpoint, "cuda" if hardware.gpus else "cpu")


@pytest.mark.parametrize(("method", "name", "says"), ALLOWED)
def test_what_runs_says_how(machine: Machine, ernie: Checkpoint, method: tuple[str, str], name: str, says: str) -> None:
    assert says in "\n".join(_plan(machine, ernie, method, name).reasons)


@pytest.mark.parametrize(("method", "name", "says"), REFUSED)
def test_what_cannot_run_is_refused_with_the_way_out(
    machine: Machine, ernie: Checkpoint, method: tuple[str, str], name: str, says: str
) -> None:
    with pytest.raises(BadSetting, match=re.escape(says)) as caught:
        _plan(machine, ernie, method, name)
    assert caught.value.variable == "ENGINE_QUANTIZATION"


def test_quantized_weights_compute_in_16_bit(machine: Machine, ernie: Checkpoint) -> None:
    tiny = replace(ernie, quantization="awq", weight_bytes=8 << 20)
    assert make(Settings(), machine("cpu-large"), tiny, "cpu").dtype == "auto"
    assert make(Settings(), machine("cpu-large"), replace(tiny, quantization=""), "cpu").dtype == "float32"
    for name, device in (("cpu-large", "cpu"), ("h100", "cuda")):
        with pytest.raises(BadSetting, match="ENGINE_DTYPE: quantized weights"):
            make(Settings(dtype="float32"), machine(name), tiny, device)
