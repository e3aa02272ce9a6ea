"""Whether a folder holds a model that vLLM can serve, and what the plan needs to know of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launcher.checkpoint import config as configs
from launcher.checkpoint import ends, quantization, template, tensors, tokenizer
from launcher.checkpoint.files import read_object
from launcher.checkpoint.safetensors import Tensor
from launcher.errors import BrokenCheckpoint

_DTYPE_BYTES = {"float32": 4, "float": 4}


@dataclass(frozen=True)
class Checkpoint:
    """A sound checkpoint: sizes in bytes, context in tokens.

    `weight_bytes` is what the weights take in the model's own `dtype`, whatever type the files have; `warnings` are
    oddities that vLLM tolerates, a line each. `longest_context_tokens` is the most that may be asked for, 0 if
    that is not known.
    """

    folder: Path
    architecture: str
    context_tokens: int
    kv_values_per_token: int
    dtype: str
    weight_bytes: int
    is_moe: bool
    quantization: str
    has_chat_template: bool
    attention_heads: int = field(default=1, kw_only=True)
    kv_heads: int = field(default=1, kw_only=True)
    experts: int = field(default=0, kw_only=True)
    longest_context_tokens: int = field(default=0, kw_only=True)
    warnings: tuple[str, ...] = field(default=(), kw_only=True)

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Bytes of KV cache that one token takes when the engine computes in `dtype` (auto: the model's)."""
        return self.kv_values_per_token * _DTYPE_BYTES.get(self.dtype if dtype == "auto" else dtype, 2)


def inspect(folder: Path) -> Checkpoint:
    """Check every file that vLLM will read, without loading one; a fraction of a second, whatever the size.

    Raises BrokenCheckpoint for the first fault, with its cure.
    """
    if not folder.is_dir():
        raise BrokenCheckpoint(f"{folder} is not a folder", "Set ENGINE_MODEL to one that holds a config.json")
    try:
        return _inspect(folder)
    except PermissionError as error:
        raise BrokenCheckpoint(
            f"{error.filename} is not readable to this user", "Run chmod -R a+rX on the folder"
        ) from error


def _inspect(folder: Path) -> Checkpoint:
    config = configs.read(folder)
    found = tokenizer.read(folder)
    generation = folder / "generation_config.json"
    warnings = ends.check(config, read_object(generation) if generation.is_file() else None, found)
    has_template = template.check(folder, found.settings)
    weights = tensors.read(folder)
    method = quantization.check(folder, config, weights)
    tensors.check(weights, config, is_quantized=bool(method))
    named = configs.dtype(config)
    warnings += tensors.odd_types(weights, named, is_quantized=bool(method))
    dtype = named or tensors.main_type(weights) or "bfloat16"
    if config.get("tie_word_embeddings"):
        # vLLM takes the embedding for it.
        weights.pop(tensors.HEAD, None)
    return Checkpoint(
        folder=folder,
        architecture=config["architectures"][0],
        context_tokens=config["max_position_embeddings"],
        kv_values_per_token=configs.kv_values(config),
        dtype=dtype,
        weight_bytes=_bytes(weights, dtype) or sum(path.stat().st_size for path in tensors.pickled(folder)),
        is_moe=configs.experts(config) > 0,
        quantization=method,
        has_chat_template=has_template,
        attention_heads=config["num_attention_heads"],
        kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
        experts=configs.experts(config),
        longest_context_tokens=configs.longest_context(config),
        warnings=tuple(warnings),
    )


def _bytes(weights: Mapping[str, Tensor], dtype: str) -> int:
    """What the tensors take once the plain ones are converted to the model's type."""
    width, total = _DTYPE_BYTES.get(dtype, 2), 0
    for tensor in weights.values():
        stored = _DTYPE_BYTES.get(tensors.FLOATS.get(tensor.dtype, ""), 2)
        total += tensor.data_bytes * width // stored if tensor.dtype in tensors.FLOATS else tensor.data_bytes
    return total
