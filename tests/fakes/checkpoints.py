"""Broken checkpoints, each made from the demo model by one function, with what the launcher should say of it."""

import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
EMBEDDING = "model.embed_tokens.weight"
END = "<|end_of_sentence|>"

# By name: number type, shape, data.
Tensors = dict[str, tuple[str, list[int], bytes]]


def copy_demo(folder: Path) -> Path:
    """Make a sound checkpoint; its weights are the demo's own file until a function here writes others."""
    folder.mkdir()
    for name in FILES:
        shutil.copy(DEMO / name, folder / name)
    (folder / WEIGHTS).symlink_to(DEMO / WEIGHTS)
    return folder


def read_weights(path: Path) -> Tensors:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entries: dict[str, Any] = json.loads(data[8 : 8 + length])
    entries.pop("__metadata__", None)
    body = data[8 + length :]
    return {
        name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]) for name, entry in entries.items()
    }


def write_weights(path: Path, tensors: Tensors) -> None:
    entries, place = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
    header = json.dumps(entries).encode()
    path.unlink(missing_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(data for *_, data in tensors.values()))


def change(name: str, **values: object) -> Callable[[Path], None]:
    """Set keys of a JSON file; None takes them out."""

    def break_it(folder: Path) -> None:
        content: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
        content.update(values)
        kept = {key: value for key, value in content.items() if value is not None}
        (folder / name).write_text(json.dumps(kept), encoding="utf-8")

    return break_it


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(data)

    return break_it


def drop(*names: str) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return break_it


def both(*functions: Callable[[Path], None]) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        for function in functions:
            function(folder)

    return break_it


def tokenizer_model(**values: object) -> Callable[[Path], None]:
    """Set keys of the model inside tokenizer.json; None takes them out."""

    def break_it(folder: Path) -> None:
        content: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        content["model"].update(values)
        content["model"] = {key: value for key, value in content["model"].items() if value is not None}
        (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")

    return break_it


def weights(edit: Callable[[Tensors], Mapping[str, tuple[str, list[int], bytes]]]) -> Callable[[Path], None]:
    """Write other tensors than the demo's."""
    return lambda folder: write_weights(folder / WEIGHTS, dict(edit(read_weights(folder / WEIGHTS))))


def without(*parts: str) -> Callable[[Path], None]:
    """Take out the tensors whose names begin so."""
    return weights(lambda tensors: {name: row for name, row in tensors.items() if not name.startswith(parts)})


def quantized(suffixes: tuple[str, ...]) -> Callable[[Path], None]:
    """Give every projection tensors of a few bytes under other endings."""

    def edit(tensors: Tensors) -> Tensors:
        found: Tensors = {}
        for name, row in tensors.items():
            if name.endswith("_proj.weight"):
                found |= {name.removesuffix(".weight") + suffix: ("F16", [2], bytes(4)) for suffix in suffixes}
            else:
                found[name] = row
        return found

    return weights(edit)


def cut(size: int) -> Callable[[Path], None]:
    """Leave so many bytes of the weights; a negative size takes that many off the end."""

    def break_it(folder: Path) -> None:
        data = (folder / WEIGHTS).read_bytes()
        write(WEIGHTS, data[:size])(folder)

    return break_it


def lengthen(folder: Path) -> None:
    write(WEIGHTS, (folder / WEIGHTS).read_bytes() + b"tail")(folder)


def damage_header(folder: Path) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"
    write(WEIGHTS, bytes(data))(folder)


def wrong_bytes(folder: Path) -> None:
    """Give a tensor a shape that its bytes do not have."""
    rows = read_weights(folder / WEIGHTS)
    dtype, shape, data = rows[EMBEDDING]
    rows[EMBEDDING] = (dtype, [shape[0], shape[1] - 1], data)
    write_weights(folder / WEIGHTS, rows)


def paddle(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model_state.pdparams")


def shard(folder: Path) -> None:
    """Put the weights into two files with an index."""
    rows = read_weights(folder / WEIGHTS)
    names = sorted(rows)
    homes = {name: "a.safetensors" if i < len(names) // 2 else "b.safetensors" for i, name in enumerate(names)}
    for home in ("a.safetensors", "b.safetensors"):
        write_weights(folder / home, {name: rows[name] for name in names if homes[name] == home})
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": homes}), encoding="utf-8")


def shard_cut(folder: Path) -> None:
    shard(folder)
    os.truncate(folder / "b.safetensors", (folder / "b.safetensors").stat().st_size // 2)


def shard_of_another_revision(folder: Path) -> None:
    shard(folder)
    rows = read_weights(folder / "b.safetensors")
    write_weights(folder / "b.safetensors", {name: rows[name] for name in sorted(rows)[1:]})


def shards_without_a_layer(folder: Path) -> None:
    """Lose a layer in index and shards alike, as a merge of two uploads does."""
    without("model.layers.2.")(folder)
    shard(folder)


@dataclass(frozen=True)
class Fault:
    """What breaks a checkpoint, and parts of what the launcher says: the fault and its cure."""

    break_it: Callable[[Path], None]
    fault: str
    cure: str


_CONFIG, _TOKENIZER, _SETTINGS = "config.json", "tokenizer.json", "tokenizer_config.json"
_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}

FAULTS = {
    "no config": Fault(drop(_CONFIG), "has no config.json", "fetch it again"),
    "config cut": Fault(write(_CONFIG, b'{"architectures": ['), "config.json is not JSON", "fetch it again"),
    "config empty": Fault(write(_CONFIG, b""), "config.json is not JSON", "fetch it again"),
    "config a list": Fault(write(_CONFIG, b"[]"), "config.json is not a JSON object", "fetch it again"),
    "config not UTF-8": Fault(write(_CONFIG, b'{"a": "\xe4\xbd"}'), "config.json is not UTF-8", "fetch it again"),
    "old architecture": Fault(
        change(_CONFIG, architectures=["Ernie4_5_ForCausalLM"]), "Ernie4_5_ForCausalLM", "write Ernie4_5ForCausalLM"
    ),
    "wrong architecture": Fault(change(_CONFIG, architectures=["BertModel"]), "BertModel", "ForCausalLM"),
    "no architecture": Fault(change(_CONFIG, architectures=[]), "names no architecture", "Ernie4_5ForCausalLM"),
    "no layers": Fault(change(_CONFIG, num_hidden_layers=None), "num_hidden_layers", "fetch it again"),
    "odd context": Fault(change(_CONFIG, max_position_embeddings="128k"), "max_position_embeddings", "fetch it again"),
    "no tokenizer": Fault(drop(_TOKENIZER), "has no tokenizer", "tokenizer files"),
    "tokenizer cut": Fault(write(_TOKENIZER, b'{"version"'), "tokenizer.json is not JSON", "fetch it again"),
    "tokenizer an LFS pointer": Fault(write(_TOKENIZER, _POINTER), "tokenizer.json is a Git LFS pointer", "fetch"),
    "tokenizer not UTF-8": Fault(write(_TOKENIZER, b'"\xff"'), "tokenizer.json is not UTF-8", "fetch it again"),
    "tokenizer without model": Fault(write(_TOKENIZER, b"{}"), "tokenizer.json has no model part", "fetch it again"),
    "tokenizer without vocabulary": Fault(tokenizer_model(vocab={}), "has no vocabulary", "fetch it again"),
    "tokenizer without merges": Fault(tokenizer_model(merges=None), "has no merges", "fetch it again"),
    "no tokenizer config": Fault(drop(_SETTINGS), "has no tokenizer_config.json", "tokenizer files"),
    "tokenizer config not UTF-8": Fault(write(_SETTINGS, b'{"eos_token": "\xe9"}'), "is not UTF-8", "fetch it again"),
    "special tokens not UTF-8": Fault(
        write("special_tokens_map.json", b'{"eos_token": "\xe9"}'), "special_tokens_map.json is not UTF-8", "fetch"
    ),
    "added tokens cut": Fault(write("added_tokens.json", b"{"), "added_tokens.json is not JSON", "fetch it again"),
    "binary tokenizer empty": Fault(
        both(drop(_TOKENIZER), write("tokenizer.model", b"")), "tokenizer.model is empty", "fetch it again"
    ),
    "binary tokenizer an LFS pointer": Fault(
        both(drop(_TOKENIZER), write("tokenizer.model", _POINTER)), "is a Git LFS pointer", "fetch it again"
    ),
    "tokenizer of another model": Fault(
        tokenizer_model(vocab={str(i): i for i in range(5000)}, merges=[]), "token ids up to 4999", "one revision"
    ),
    "generation config not UTF-8": Fault(
        write("generation_config.json", b'"\xff"'), "generation_config.json is not UTF-8", "fetch it again"
    ),
    "endless: no end named": Fault(
        both(
            change(_CONFIG, eos_token_id=None),
            change("generation_config.json", eos_token_id=None),
            change(_SETTINGS, eos_token=None),
        ),
        "no file names an end of text: no answer would ever end",
        "Set eos_token in tokenizer_config.json",
    ),
    "endless: an end that the tokenizer has not": Fault(
        both(change("generation_config.json", eos_token_id=4096), change(_SETTINGS, eos_token="</s>")),  # noqa: S106
        "eos_token </s> and eos_token_id 4096 are not in the vocabulary",
        "eos_token_id in generation_config.json",
    ),
    "template that does not parse": Fault(
        write("chat_template.jinja", b"{% for message in messages %}{{ message }}"), "does not parse (line 1", "correct"
    ),
    "template inside that does not parse": Fault(
        both(drop("chat_template.jinja"), change(_SETTINGS, chat_template="{{ messages")), "does not parse", "correct"
    ),
    "template not UTF-8": Fault(
        write("chat_template.jinja", b"{{ 'caf\xe9' }}"), "chat_template.jinja is not UTF-8", "fetch it again"
    ),
    "no weights": Fault(drop(WEIGHTS), "has no weights", "incomplete"),
    "Paddle weights": Fault(paddle, "Paddle weights", "-PT"),
    "Paddle repository": Fault(both(paddle, drop(_CONFIG)), "Paddle weights", "-PT"),
    "weights cut": Fault(cut(-1), "is truncated: it has", "fetch it again"),
    "weights cut early": Fault(cut(20), "truncated inside its header", "fetch it again"),
    "weights empty": Fault(cut(0), "is truncated: it has 0 bytes", "fetch it again"),
    "weights too long": Fault(lengthen, "bytes after its end", "fetch it again"),
    "weights' header damaged": Fault(damage_header, "damaged header", "fetch it again"),
    "weights' shape damaged": Fault(wrong_bytes, "has not the bytes of its shape", "fetch it again"),
    "weights are HTML": Fault(write(WEIGHTS, b"<!DOCTYPE html><html>" * 9), "does not begin with", "fetch it again"),
    "LFS pointer": Fault(write(WEIGHTS, _POINTER), "Git LFS pointer", "fetch it again"),
    "shard missing": Fault(both(shard, drop("b.safetensors")), "b.safetensors is missing", "Fetch the missing file"),
    "shard cut": Fault(shard_cut, "b.safetensors is truncated", "fetch it again"),
    "shard of another revision": Fault(shard_of_another_revision, "b.safetensors lacks model.", "one revision"),
    "index without map": Fault(both(shard, write(INDEX, b"{}")), "has no weight_map", "fetch it again"),
    "a layer missing": Fault(shards_without_a_layer, "the weights lack layer 2 of 4", "one revision"),
    "a tensor missing": Fault(
        without("model.layers.1.mlp.up_proj"), "the weights lack model.layers.1.mlp.up_proj.weight", "one revision"
    ),
    "config of a larger model": Fault(
        change(_CONFIG, vocab_size=103424), "has the shape (4096, 256), and config.json's", "one revision"
    ),
    "no head": Fault(change(_CONFIG, tie_word_embeddings=False), "the weights lack lm_head.weight", "say true there"),
    "AWQ in name only": Fault(
        change(_CONFIG, quantization_config=_AWQ), "quantized (awq), but they have no *.qweight", "ENGINE_QUANTIZATION"
    ),
    "AWQ without its name": Fault(
        quantized((".qweight", ".scales", ".qzeros")), "config.json has no quantization_config", "one revision"
    ),
    "AWQ without bits": Fault(
        both(
            quantized((".qweight", ".scales", ".qzeros")),
            change(_CONFIG, quantization_config={"quant_method": "awq", "group_size": 128, "zero_point": True}),
        ),
        "of the method awq and lacks bits or w_bit",
        "quantized with",
    ),
    "AWQ without scales": Fault(
        both(quantized((".qweight", ".qzeros")), change(_CONFIG, quantization_config=_AWQ)),
        "is there without its scales",
        "one revision",
    ),
    "GPTQ without its group": Fault(
        both(
            quantized((".qweight", ".scales")),
            change(_CONFIG, quantization_config={"quant_method": "gptq", "bits": 4, "desc_act": False, "sym": True}),
        ),
        "of the method gptq and lacks group_size",
        "quantized with",
    ),
    "FP8 without scales": Fault(
        change(_CONFIG, quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic"}),
        "quantized (fp8), but they have no *.weight_scale",
        "one revision",
    ),
    "compressed in name only": Fault(
        change(_CONFIG, quantization_config={"quant_method": "compressed_tensors", "config_groups": {"group_0": {}}}),
        "quantized (compressed-tensors), but they have no",
        "one revision",
    ),
    "quantized by nothing": Fault(
        change(_CONFIG, quantization_config={"bits": 4}), "names no quant_method", "quant_method"
    ),
}
