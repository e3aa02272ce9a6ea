"""How a checkpoint is quantized: what its config says, against the tensors that are really there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.checkpoint.files import read_object
from launcher.checkpoint.safetensors import Tensor
from launcher.checkpoint.tensors import ONE_REVISION
from launcher.errors import BrokenCheckpoint

# Files in which some tools write it instead of config.json; vLLM reads them if it is told the method.
_OTHER_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")


@dataclass(frozen=True)
class _Method:
    """Keys that vLLM's reader asks for (one of each group), and endings of which the tensors must have one."""

    keys: tuple[tuple[str, ...], ...]
    endings: tuple[str, ...]


# vllm/model_executor/layers/quantization, the from_config and create_weights of each.
_METHODS = {
    "awq": _Method((("bits", "w_bit"), ("group_size", "q_group_size"), ("zero_point",)), (".qweight",)),
    "gptq": _Method((("bits",), ("group_size",), ("desc_act",), ("sym",)), (".qweight",)),
    "fp8": _Method((("activation_scheme",),), (".weight_scale", ".weight_scale_inv")),
    "compressed-tensors": _Method((), (".weight_scale", ".weight_packed", ".weight_global_scale")),
}
_ENDINGS = tuple(sorted({ending for method in _METHODS.values() for ending in method.endings}))


def check(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the method's name as vLLM spells it, empty for plain weights. Raises BrokenCheckpoint."""
    settings = config.get("quantization_config") or config.get("compression_config")
    if not settings:
        _check_plain(folder, tensors)
        return ""
    if not isinstance(settings, dict):
        raise BrokenCheckpoint("config.json's quantization_config is not an object", ONE_REVISION)
    name = str(settings.get("quant_method") or "").lower().replace("compressed_tensors", "compressed-tensors")
    if not name and not settings.get("producer") and not settings.get("quantization"):
        raise BrokenCheckpoint(
            "config.json's quantization_config names no quant_method", 'Add it, for example "quant_method": "awq"'
        )
    method = _METHODS.get(name)
    if method is not None:
        _check_keys(name, settings, method)
        if tensors and not (name == "compressed-tensors" and not settings.get("config_groups")):
            _check_tensors(name, tensors, method)
    return name


def _check_keys(name: str, settings: Mapping[str, Any], method: _Method) -> None:
    for group in method.keys:
        if not any(key in settings for key in group):
            raise BrokenCheckpoint(
                f"config.json's quantization_config is of the method {name} and lacks {' or '.join(group)}",
                "Add it with the value that the weights were quantized with, or fetch config.json again",
            )


def _check_tensors(name: str, tensors: Mapping[str, Tensor], method: _Method) -> None:
    if not any(tensor.endswith(method.endings) for tensor in tensors):
        raise BrokenCheckpoint(
            f"config.json says the weights are quantized ({name}), but they have no"
            f" {' or '.join('*' + ending for ending in method.endings)}",
            f"{ONE_REVISION}; for plain weights remove quantization_config, and see ENGINE_QUANTIZATION",
        )
    words = [tensor for tensor in tensors if tensor.endswith(".qweight")]
    lost = [word for word in sorted(words) if f"{word.removesuffix('.qweight')}.scales" not in tensors]
    if lost:
        raise BrokenCheckpoint(f"{lost[0]} is there without its scales", ONE_REVISION)


def _check_plain(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    for name in _OTHER_FILES:
        if (folder / name).is_file():
            read_object(folder / name)
            return
    quantized = next((name for name in sorted(tensors) if name.endswith(_ENDINGS)), None)
    if quantized:
        raise BrokenCheckpoint(
            f"the weights are quantized ({quantized}), but config.json has no quantization_config", ONE_REVISION
        )
