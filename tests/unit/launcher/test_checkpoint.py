"""Every fault that a checkpoint can have, each made from a sound one."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher import checkpoint
from launcher.errors import BrokenCheckpoint

from .conftest import CONFIG, TENSOR_BYTES, write_json, write_weights


def test_a_sound_one(model: Path) -> None:
    found = checkpoint.inspect(model)
    assert found.architecture == "Ernie4_5ForCausalLM"
    assert found.context_tokens == 131072
    assert found.weight_bytes == 2 * TENSOR_BYTES
    assert found.has_chat_template
    assert not found.is_moe
    # 18 KiB a token in bfloat16, the figure in docs/facts.md.
    assert found.kv_bytes_per_token("auto") == found.kv_bytes_per_token("float16") == 18 * 1024
    assert found.kv_bytes_per_token("float32") == 36 * 1024


def _set(key: str, value: object) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / "config.json", {**CONFIG, key: value})


def _drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data)  # type: ignore[return-value]


def _cut(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 1)


def _cut_header(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 20)


def _lengthen(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"tail")


def _damage_header(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"
    (folder / "model.safetensors").write_bytes(data)


def _paddle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model_state.pdparams")


def _paddle_alone(folder: Path) -> None:
    _paddle(folder)
    (folder / "config.json").unlink()


def _shard(folder: Path) -> None:
    write_weights(folder / "a.safetensors", ("one",))
    write_weights(folder / "b.safetensors", ("two",))
    (folder / "model.safetensors").unlink()
    write_json(folder / checkpoint.INDEX, {"weight_map": {"one": "a.safetensors", "two": "b.safetensors"}})


def _shard_missing(folder: Path) -> None:
    _shard(folder)
    (folder / "b.safetensors").unlink()


def _shard_cut(folder: Path) -> None:
    _shard(folder)
    os.truncate(folder / "b.safetensors", (folder / "b.safetensors").stat().st_size // 2)


def _shard_of_another_revision(folder: Path) -> None:
    _shard(folder)
    write_weights(folder / "b.safetensors", ("three",))


def _index_without_map(folder: Path) -> None:
    _shard(folder)
    write_json(folder / checkpoint.INDEX, {"metadata": {}})


FAULTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "no config": (_drop("config.json"), "has no config.json", "fetch it again"),
    "config cut": (_write("config.json", json.dumps(CONFIG).encode()[:-9]), "config.json is not JSON", "fetch"),
    "config empty": (_write("config.json", b""), "config.json is not JSON", "fetch"),
    "config a list": (_write("config.json", b"[]"), "config.json is not a JSON object", "fetch"),
    "config not UTF-8": (_write("config.json", b'{"a": "\xe4\xbd"}'), "config.json is not UTF-8", "fetch"),
    "old architecture": (
        _set("architectures", ["Ernie4_5_ForCausalLM"]),
        "Ernie4_5_ForCausalLM",
        "Ernie4_5ForCausalLM",
    ),
    "wrong architecture": (_set("architectures", ["BertModel"]), "BertModel", "ForCausalLM"),
    "no architecture": (_set("architectures", []), "names no architecture", "Ernie4_5ForCausalLM"),
    "no layers": (_set("num_hidden_layers", None), "num_hidden_layers", "fetch"),
    "odd context": (_set("max_position_embeddings", "128k"), "max_position_embeddings", "fetch"),
    "no tokenizer": (_drop("tokenizer.json"), "has no tokenizer", "tokenizer files"),
    "tokenizer cut": (_write("tokenizer.json", b'{"version"'), "tokenizer.json is not JSON", "fetch"),
    "no tokenizer config": (_drop("tokenizer_config.json"), "has no tokenizer_config.json", "tokenizer files"),
    "no weights": (_drop("model.safetensors"), "has no weights", "incomplete"),
    "Paddle weights": (_paddle, "Paddle weights", "-PT"),
    "Paddle repository": (_paddle_alone, "Paddle weights", "-PT"),
    "weights cut": (_cut, "is truncated: it has", "fetch it again"),
    "weights cut early": (_cut_header, "truncated inside its header", "fetch it again"),
    "weights empty": (_write("model.safetensors", b""), "is truncated: it has 0 bytes", "fetch it again"),
    "weights too long": (_lengthen, "bytes after its end", "fetch it again"),
    "weights' header damaged": (_damage_header, "damaged header", "fetch it again"),
    "weights are HTML": (_write("model.safetensors", b"<!DOCTYPE html><html>" * 9), "does not begin with", "fetch"),
    "LFS pointer": (
        _write("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"),
        "Git LFS pointer",
        "fetch it again",
    ),
    "shard missing": (_shard_missing, "b.safetensors is missing", "Fetch the missing file"),
    "shard cut": (_shard_cut, "b.safetensors is truncated", "fetch it again"),
    "shard of another revision": (_shard_of_another_revision, "lacks two", "one revision"),
    "index without map": (_index_without_map, "has no weight_map", "fetch it again"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_cure(model: Path, fault: str) -> None:
    break_it, names, cures = FAULTS[fault]
    break_it(model)
    with pytest.raises(BrokenCheckpoint) as caught:
        checkpoint.inspect(model)
    assert caught.value.exit_code == 4
    assert names in caught.value.fault
    assert cures in caught.value.cure
    assert "\n" not in str(caught.value)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BrokenCheckpoint, match=r"is not a folder.*ENGINE_MODEL"):
        checkpoint.inspect(tmp_path / "absent")


def test_shards_add_up(model: Path) -> None:
    _shard(model)
    assert checkpoint.inspect(model).weight_bytes == 2 * TENSOR_BYTES


def test_a_folder_that_is_not_readable(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root reads everything, so the refusal is the only thing here that is not real.
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BrokenCheckpoint, match=r"not readable to this user\. Run chmod"):
        checkpoint.inspect(model)


def test_what_the_plan_needs_to_know(model: Path) -> None:
    write_json(
        model / "config.json",
        {**CONFIG, "moe_num_experts": 64, "quantization_config": {"quant_method": "awq"}, "torch_dtype": "float16"},
    )
    write_json(model / "tokenizer_config.json", {})
    found = checkpoint.inspect(model)
    assert found.is_moe
    assert found.quantization == "awq"
    assert not found.has_chat_template
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert checkpoint.inspect(model).has_chat_template
