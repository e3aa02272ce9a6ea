"""A checkpoint's config.json: which model it is, and how large."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.checkpoint.files import FETCH_AGAIN, read_object
from launcher.errors import BrokenCheckpoint

PT_REPOSITORY = "Use the -PT repository, which is the same model for PyTorch"
# Names of one release of ERNIE's conversion scripts; the architectures are the same.
_OLD_ARCHITECTURES = {
    "Ernie4_5_ForCausalLM": "Ernie4_5ForCausalLM",
    "Ernie4_5_MoEForCausalLM": "Ernie4_5_MoeForCausalLM",
}
_SHAPE = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "max_position_embeddings")
# May be absent or null; what is there counts in the plan.
_OPTIONAL_SHAPE = ("head_dim", "num_key_value_heads")
_MOST_STRETCHED = 1024
_MOE_KEYS = ("moe_num_experts", "num_experts", "num_local_experts", "n_routed_experts")


def read(folder: Path) -> dict[str, Any]:
    """Read it, sizes checked. Raises BrokenCheckpoint."""
    if not (folder / "config.json").is_file():
        if is_paddle(folder):
            raise BrokenCheckpoint(f"{folder} holds Paddle weights, which vLLM cannot load", PT_REPOSITORY)
        raise BrokenCheckpoint(
            f"{folder} has no config.json", "The folder is not a model or its download is incomplete; fetch it again"
        )
    config = read_object(folder / "config.json")
    _check_architecture(config)
    keys = (*_SHAPE, *(key for key in _OPTIONAL_SHAPE if config.get(key) is not None))
    wrong = [key for key in keys if not isinstance(config.get(key), int) or config[key] < 1]
    if wrong:
        raise BrokenCheckpoint(f"config.json lacks a positive {', '.join(wrong)}", FETCH_AGAIN)
    return config


def longest_context(config: Mapping[str, Any]) -> int:
    """What vLLM lets a context have at most, or more: the model's own length, times a factor that stretches positions.

    vllm/config/model.py, _get_and_verify_max_len, which leaves the factor out for some kinds of stretching.
    """
    named = config.get("model_max_length")
    own: int = max(config["max_position_embeddings"], named if isinstance(named, int) else 0)
    stretching = config.get("rope_parameters") or config.get("rope_scaling")
    factor = stretching.get("factor") if isinstance(stretching, dict) else None
    return int(own * factor) if isinstance(factor, int | float) and 1 < factor <= _MOST_STRETCHED else own


def dtype(config: Mapping[str, Any]) -> str:
    """The number type that it names; empty if it names none."""
    return str(config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")


def kv_values(config: Mapping[str, Any]) -> int:
    """Numbers that one token puts into the KV cache."""
    heads: int = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return int(2 * config["num_hidden_layers"] * kv_heads * head_dim)


def experts(config: Mapping[str, Any]) -> int:
    """How many routed experts a layer has; 0 in a dense model."""
    counts = (config.get(key) for key in _MOE_KEYS)
    return next((count for count in counts if isinstance(count, int) and count > 0), 0)


def is_paddle(folder: Path) -> bool:
    """Whether there are weights of Paddle in the folder."""
    return any(folder.glob("*.pdparams")) or any(folder.glob("*.pdiparams"))


def _check_architecture(config: Mapping[str, Any]) -> None:
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
