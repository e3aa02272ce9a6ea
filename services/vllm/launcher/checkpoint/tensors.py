"""A checkpoint's weights: every file whole, every tensor that the config promises there, in its shape."""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from launcher.checkpoint import safetensors
from launcher.checkpoint.config import PT_REPOSITORY, is_paddle
from launcher.checkpoint.files import FETCH_AGAIN, read_object
from launcher.checkpoint.safetensors import Tensor
from launcher.errors import BrokenCheckpoint

INDEX = "model.safetensors.index.json"
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
ONE_REVISION = "Fetch config and weights of one revision"
# By the format's names; what vLLM loads into a plain layer.
FLOATS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
# In these, every layer has tensors of its own under these names; others share layers, or leave some empty.
_PLAIN = frozenset({"Ernie4_5ForCausalLM", "Ernie4_5_MoeForCausalLM", "LlamaForCausalLM", "Qwen2ForCausalLM"})
# ... and here all layers have the same ones.
_UNIFORM = frozenset({"Ernie4_5ForCausalLM", "LlamaForCausalLM", "Qwen2ForCausalLM"})


def read(folder: Path) -> dict[str, Tensor]:
    """Every tensor by its name, headers only; none for pickled weights, whose names are not read.

    Raises BrokenCheckpoint for files that are absent, cut or damaged, OSError for those that cannot be read.
    """
    if (folder / INDEX).is_file():
        return _shards(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files and not pickled(folder):
        if is_paddle(folder):
            raise BrokenCheckpoint(f"{folder} holds Paddle weights, which vLLM cannot load", PT_REPOSITORY)
        raise BrokenCheckpoint(
            f"{folder} has no weights (*.safetensors)", "The download is incomplete, or this is not a -PT repository"
        )
    return {name: tensor for path in files for name, tensor in _contents(path).items()}


def pickled(folder: Path) -> list[Path]:
    """Weights in PyTorch's own format."""
    return sorted(folder.glob("*.bin"))


def check(tensors: Mapping[str, Tensor], config: Mapping[str, Any], *, is_quantized: bool) -> None:
    """Compare names and shapes with the config, as vLLM's loader does, for architectures that are known to be plain.

    Raises BrokenCheckpoint.
    """
    architecture = config["architectures"][0]
    if architecture not in _PLAIN:
        return
    _check_layers(tensors, config, is_uniform=architecture in _UNIFORM and not is_quantized)
    _check_embedding(tensors, config)
    if not is_quantized and config.get("tie_word_embeddings") is False and EMBEDDING in tensors and HEAD not in tensors:
        raise BrokenCheckpoint(
            f"the weights lack {HEAD}, and config.json says tie_word_embeddings: false",
            f"{ONE_REVISION}; if the model ties them, say true there",
        )


def odd_types(tensors: Mapping[str, Tensor], dtype: str, *, is_quantized: bool) -> list[str]:
    """What is odd and tolerated in the tensors' number types, a line each."""
    if is_quantized or not tensors:
        return []
    found = []
    values: Counter[str] = Counter()
    for tensor in tensors.values():
        values[tensor.dtype] += tensor.data_bytes
    unknown = sorted(set(values) - set(FLOATS))
    if unknown:
        first = next(name for name, tensor in sorted(tensors.items()) if tensor.dtype == unknown[0])
        found.append(f"{first} is of the type {unknown[0]}, which is not one of {', '.join(FLOATS)}")
    most = FLOATS.get(values.most_common(1)[0][0], "")
    if dtype and most and most != dtype:
        more = ": twice the bytes to fetch and read" if most == "float32" else ""
        found.append(f"the weights are {most} and config.json says {dtype}{more}; vLLM converts them")
    return found


def main_type(tensors: Mapping[str, Tensor]) -> str:
    """The float type that most of the bytes have; empty if there is none."""
    values: Counter[str] = Counter()
    for tensor in tensors.values():
        values[FLOATS.get(tensor.dtype, "")] += tensor.data_bytes
    return values.most_common(1)[0][0] if values else ""


def _shards(folder: Path) -> dict[str, Tensor]:
    index = read_object(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not index or not all(isinstance(name, str) for name in index.values()):
        raise BrokenCheckpoint(f"{folder / INDEX} has no weight_map", FETCH_AGAIN)
    found: dict[str, Tensor] = {}
    for shard in sorted(set(index.values())):
        path = folder / shard
        if not path.is_file():
            raise BrokenCheckpoint(f"{path} is missing, although {INDEX} lists it", "Fetch the missing file")
        contents = _contents(path)
        lost = sorted({name for name, home in index.items() if home == shard} - set(contents))
        if lost:
            raise BrokenCheckpoint(
                f"{path} lacks {lost[0]}, although {INDEX} puts it there", "Fetch index and shards of one revision"
            )
        found |= contents
    return found


def _contents(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.inspect(path)
    except safetensors.UnsoundError as error:
        raise BrokenCheckpoint(f"{path} {error}", FETCH_AGAIN) from error


def _check_layers(tensors: Mapping[str, Tensor], config: Mapping[str, Any], *, is_uniform: bool) -> None:
    layers: dict[int, set[str]] = {}
    for match in filter(None, map(_LAYER.fullmatch, tensors)):
        layers.setdefault(int(match[1]), set()).add(match[2])
    if not layers:
        return
    promised = range(config["num_hidden_layers"])
    # Only the first few: a damaged config may promise any number.
    absent = [str(number) for number in islice((number for number in promised if number not in layers), 3)]
    if absent:
        raise BrokenCheckpoint(
            f"the weights lack layer {', '.join(absent)} of {len(promised)} in config.json", ONE_REVISION
        )
    if is_uniform:
        names = set().union(*(layers[number] for number in promised))
        for number in promised:
            for name in sorted(names - layers[number]):
                raise BrokenCheckpoint(f"the weights lack model.layers.{number}.{name}", ONE_REVISION)


def _check_embedding(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    embedding = tensors.get(EMBEDDING)
    wanted = (config["vocab_size"], config["hidden_size"])
    if embedding is not None and embedding.dtype in FLOATS and embedding.shape != wanted:
        raise BrokenCheckpoint(
            f"{EMBEDDING} has the shape {embedding.shape}, and config.json's vocab_size and hidden_size are {wanted}",
            ONE_REVISION,
        )
