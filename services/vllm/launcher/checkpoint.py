"""Whether a folder holds a model that vLLM can serve, and what the plan needs to know of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher import safetensors
from launcher.errors import BrokenCheckpoint

INDEX = "model.safetensors.index.json"
FETCH_AGAIN = "Delete it and fetch it again"
_PT_REPOSITORY = "Use the -PT repository, which is the same model for PyTorch"
# Names of one release of ERNIE's conversion scripts; the architectures are the same.
_OLD_ARCHITECTURES = {
    "Ernie4_5_ForCausalLM": "Ernie4_5ForCausalLM",
    "Ernie4_5_MoEForCausalLM": "Ernie4_5_MoeForCausalLM",
}
_SHAPE = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "max_position_embeddings")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_MOE_KEYS = ("moe_num_experts", "num_experts", "num_local_experts", "n_routed_experts")
_DTYPE_BYTES = {"float32": 4, "float": 4}


@dataclass(frozen=True)
class Checkpoint:
    """A sound checkpoint: sizes in bytes, context in tokens."""

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

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Bytes of KV cache that one token takes when the engine computes in `dtype` (auto: the model's)."""
        return self.kv_values_per_token * _DTYPE_BYTES.get(self.dtype if dtype == "auto" else dtype, 2)


def inspect(folder: Path) -> Checkpoint:
    """Check every file that vLLM will read, without loading one; milliseconds, whatever the size.

    Raises BrokenCheckpoint for the first fault, with its cure.
    """
    if not folder.is_dir():
        raise BrokenCheckpoint(f"{folder} is not a folder", "Set ENGINE_MODEL to one that holds a config.json")
    try:
        config = _read_config(folder)
        architecture = _architecture(config)
        _check_shape(config)
        tokenizer_config = _check_tokenizer(folder)
        weight_bytes = _check_weights(folder)
    except PermissionError as error:
        raise BrokenCheckpoint(
            f"{error.filename} is not readable to this user", "Run chmod -R a+rX on the folder"
        ) from error
    return Checkpoint(
        folder=folder,
        architecture=architecture,
        context_tokens=config["max_position_embeddings"],
        kv_values_per_token=_kv_values(config),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "bfloat16").removeprefix("torch."),
        weight_bytes=weight_bytes,
        is_moe=any(config.get(key) for key in _MOE_KEYS),
        quantization=str((config.get("quantization_config") or {}).get("quant_method", "")),
        has_chat_template="chat_template" in tokenizer_config or any((folder / name).is_file() for name in _TEMPLATES),
        attention_heads=config["num_attention_heads"],
        kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
        experts=next((int(config[key]) for key in _MOE_KEYS if isinstance(config.get(key), int)), 0),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    if not (folder / "config.json").is_file():
        if _is_paddle(folder):
            raise BrokenCheckpoint(f"{folder} holds Paddle weights, which vLLM cannot load", _PT_REPOSITORY)
        raise BrokenCheckpoint(
            f"{folder} has no config.json", "The folder is not a model or its download is incomplete; fetch it again"
        )
    return _read_object(folder / "config.json")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BrokenCheckpoint(f"{path} is not UTF-8 (byte {error.start})", FETCH_AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise BrokenCheckpoint(f"{path} is not JSON: {error}", FETCH_AGAIN) from error
    if not isinstance(value, dict):
        raise BrokenCheckpoint(f"{path} is not a JSON object", FETCH_AGAIN)
    return value


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise BrokenCheckpoint("config.json names no architecture", 'Add "architectures": ["Ernie4_5ForCausalLM"]')
    name = names[0]
    if name in _OLD_ARCHITECTURES:
        raise BrokenCheckpoint(
            f"config.json names the architecture {name}, which vLLM does not know",
            f"It is an old snapshot: fetch the present -PT revision, or write {_OLD_ARCHITECTURES[name]} there",
        )
    if not name.endswith("ForCausalLM"):
        raise BrokenCheckpoint(
            f"config.json names the architecture {name}, which does not generate text",
            "Set ENGINE_MODEL to a model whose architecture ends in ForCausalLM",
        )
    return name


def _check_shape(config: Mapping[str, Any]) -> None:
    wrong = [key for key in _SHAPE if not isinstance(config.get(key), int) or config[key] < 1]
    if wrong:
        raise BrokenCheckpoint(f"config.json lacks a positive {', '.join(wrong)}", FETCH_AGAIN)


def _kv_values(config: Mapping[str, Any]) -> int:
    heads: int = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return int(2 * config["num_hidden_layers"] * kv_heads * head_dim)


def _check_tokenizer(folder: Path) -> dict[str, Any]:
    present = [name for name in _TOKENIZERS if (folder / name).is_file()]
    if not present:
        raise BrokenCheckpoint(
            f"{folder} has no tokenizer ({' or '.join(_TOKENIZERS)})", "Fetch the tokenizer files of the model too"
        )
    if "tokenizer.json" in present:
        _read_object(folder / "tokenizer.json")
    elif (folder / "tokenizer.model").stat().st_size == 0:
        raise BrokenCheckpoint(f"{folder / 'tokenizer.model'} is empty", FETCH_AGAIN)
    if not (folder / "tokenizer_config.json").is_file():
        raise BrokenCheckpoint(f"{folder} has no tokenizer_config.json", "Fetch the tokenizer files of the model too")
    return _read_object(folder / "tokenizer_config.json")


def _check_weights(folder: Path) -> int:
    """Bytes of the weights, every shard checked."""
    if (folder / INDEX).is_file():
        return _check_shards(folder)
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return sum(_contents(path).data_bytes for path in files)
    pickled = sorted(folder.glob("*.bin"))
    if pickled:
        return sum(path.stat().st_size for path in pickled)
    if _is_paddle(folder):
        raise BrokenCheckpoint(f"{folder} holds Paddle weights, which vLLM cannot load", _PT_REPOSITORY)
    raise BrokenCheckpoint(
        f"{folder} has no weights (*.safetensors)", "The download is incomplete, or this is not a -PT repository"
    )


def _check_shards(folder: Path) -> int:
    index = _read_object(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not index or not all(isinstance(name, str) for name in index.values()):
        raise BrokenCheckpoint(f"{folder / INDEX} has no weight_map", FETCH_AGAIN)
    total = 0
    for shard in sorted(set(index.values())):
        path = folder / shard
        if not path.is_file():
            raise BrokenCheckpoint(f"{path} is missing, although {INDEX} lists it", "Fetch the missing file")
        contents = _contents(path)
        lost = sorted({name for name, home in index.items() if home == shard} - contents.tensors)
        if lost:
            raise BrokenCheckpoint(
                f"{path} lacks {lost[0]}, although {INDEX} puts it there", "Fetch index and shards of one revision"
            )
        total += contents.data_bytes
    return total


def _contents(path: Path) -> safetensors.Contents:
    try:
        return safetensors.inspect(path)
    except safetensors.UnsoundError as error:
        raise BrokenCheckpoint(f"{path} {error}", FETCH_AGAIN) from error


def _is_paddle(folder: Path) -> bool:
    return any(folder.glob("*.pdparams")) or any(folder.glob("*.pdiparams"))
