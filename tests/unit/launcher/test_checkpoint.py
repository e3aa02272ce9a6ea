"""Every fault that a checkpoint can have, each made from the demo model; and what is tolerated, with a word."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher import checkpoint
from launcher.errors import BrokenCheckpoint

from tests.fakes import checkpoints
from tests.fakes.checkpoints import EMBEDDING, FAULTS, WEIGHTS, change, copy_demo, drop, quantized, read_weights, write

from .conftest import TENSOR_BYTES


def _file(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return copy_demo(tmp_path / "demo")


def test_a_sound_one(demo: Path) -> None:
    found = checkpoint.inspect(demo)
    assert found.architecture == "Ernie4_5ForCausalLM"
    assert found.context_tokens == 4096
    assert found.weight_bytes == sum(len(data) for *_, data in read_weights(demo / WEIGHTS).values())
    assert found.dtype == "bfloat16"
    assert found.has_chat_template
    assert not found.is_moe
    assert found.quantization == ""
    assert found.warnings == ()


def test_the_size_of_the_kv_cache(model: Path) -> None:
    found = checkpoint.inspect(model)
    assert found.weight_bytes == 2 * TENSOR_BYTES
    # 18 KiB a token in bfloat16, the figure in docs/facts.md.
    assert found.kv_bytes_per_token("auto") == found.kv_bytes_per_token("float16") == 18 * 1024
    assert found.kv_bytes_per_token("float32") == 36 * 1024


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_cure(demo: Path, name: str) -> None:
    fault = FAULTS[name]
    fault.break_it(demo)
    with pytest.raises(BrokenCheckpoint) as caught:
        checkpoint.inspect(demo)
    assert caught.value.exit_code == 4
    assert fault.fault in caught.value.fault
    assert fault.cure in caught.value.cure
    assert "\n" not in str(caught.value)


# What stands in a file must end in a refusal, never in a traceback or in a search without end.
HOSTILE = {
    "a header of nested lists": write(WEIGHTS, _file(b"[" * 200_000)),
    "a header of nested objects": write(WEIGHTS, _file(b'{"a":' * 200_000)),
    "an infinite shape": write(WEIGHTS, _file(b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}')),
    "an infinite offset": write(WEIGHTS, _file(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e999]}}')),
    "a head that is a text": change("config.json", head_dim="128"),
    "heads below zero": change("config.json", num_key_value_heads=-2),
    "a list for the number of heads": change("config.json", num_key_value_heads=[2]),
    "more layers than can be counted": change("config.json", num_hidden_layers=10**12),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_numbers_are_refused(demo: Path, name: str) -> None:
    HOSTILE[name](demo)
    with pytest.raises(BrokenCheckpoint):
        checkpoint.inspect(demo)


def test_odd_lists_of_a_tokenizer_are_passed_over(demo: Path) -> None:
    change("tokenizer.json", added_tokens=5)(demo)
    assert checkpoint.inspect(demo).has_chat_template


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BrokenCheckpoint, match=r"is not a folder.*ENGINE_MODEL"):
        checkpoint.inspect(tmp_path / "absent")


def test_a_folder_that_is_not_readable(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root reads everything, so the refusal is the only thing here that is not real.
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BrokenCheckpoint, match=r"not readable to this user\. Run chmod"):
        checkpoint.inspect(demo)


def test_shards_add_up(demo: Path) -> None:
    whole = checkpoint.inspect(demo)
    checkpoints.shard(demo)
    assert checkpoint.inspect(demo) == whole


def _as_float32(folder: Path) -> None:
    checkpoints.weights(
        lambda rows: {name: ("F32", shape, bytes(2 * len(data))) for name, (_, shape, data) in rows.items()}
    )(folder)


def _one_of_a_strange_type(folder: Path) -> None:
    checkpoints.weights(lambda rows: {**rows, "model.extra": ("U8", [3], bytes(3))})(folder)


TOLERATED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no generation config": (drop("generation_config.json"), "there is no generation_config.json"),
    "config and generation config disagree": (
        change("config.json", eos_token_id=3),
        "eos_token_id is 3 in config.json, 2 in generation_config",
    ),
    "tokenizer and configs disagree": (
        checkpoints.both(change("config.json", eos_token_id=3), change("generation_config.json", eos_token_id=[3])),
        "eos_token <|end_of_sentence|> is 2 for the tokenizer, 3 for the rest",
    ),
    "an end that the tokenizer has not": (
        change("tokenizer_config.json", eos_token="</s>"),  # noqa: S106
        "the tokenizer has no </s>",
    ),
    "padding outside the vocabulary": (
        change("config.json", pad_token_id=-1),
        "pad_token_id -1 in config.json is outside the vocabulary of 4096",
    ),
    "a token beyond the vocabulary": (
        write("added_tokens.json", b'{"[PAD]": 4096}'),
        "the tokenizer has [PAD] beyond the vocabulary of 4096",
    ),
    "float32 weights": (_as_float32, "the weights are float32 and config.json says bfloat16: twice the bytes"),
    "a strange type": (_one_of_a_strange_type, "model.extra is of the type U8"),
}


@pytest.mark.parametrize("name", TOLERATED)
def test_what_vllm_tolerates_is_a_warning(demo: Path, name: str) -> None:
    break_it, says = TOLERATED[name]
    break_it(demo)
    warnings = checkpoint.inspect(demo).warnings
    assert any(says in line for line in warnings), warnings


def test_the_size_is_that_in_memory_whatever_the_files_hold(demo: Path) -> None:
    whole = checkpoint.inspect(demo)
    _as_float32(demo)
    assert checkpoint.inspect(demo).weight_bytes == whole.weight_bytes
    change("config.json", dtype="float32")(demo)
    assert checkpoint.inspect(demo).weight_bytes == 2 * whole.weight_bytes
    change("config.json", dtype=None)(demo)
    assert checkpoint.inspect(demo).dtype == "float32"


def test_a_head_that_is_tied_is_not_counted(demo: Path) -> None:
    whole = checkpoint.inspect(demo)
    checkpoints.weights(lambda rows: {**rows, "lm_head.weight": rows[EMBEDDING]})(demo)
    assert checkpoint.inspect(demo) == whole
    change("config.json", tie_word_embeddings=False)(demo)
    assert checkpoint.inspect(demo).weight_bytes > whole.weight_bytes


QUANTIZED = {
    "awq": ({"w_bit": 4, "q_group_size": 128, "zero_point": True}, (".qweight", ".scales", ".qzeros")),
    "gptq": ({"bits": 4, "group_size": 128, "desc_act": False, "sym": True}, (".qweight", ".scales", ".g_idx")),
    "fp8": ({"activation_scheme": "static"}, (".weight", ".weight_scale")),
    "compressed-tensors": ({"config_groups": {"group_0": {}}}, (".weight_packed", ".weight_scale")),
    "some-method-of-tomorrow": ({}, (".weight",)),
}


@pytest.mark.parametrize("method", QUANTIZED)
def test_a_quantized_one_is_sound(demo: Path, method: str) -> None:
    settings, endings = QUANTIZED[method]
    quantized(endings)(demo)
    change("config.json", quantization_config={"quant_method": method, **settings})(demo)
    found = checkpoint.inspect(demo)
    assert found.quantization == method
    assert found.warnings == ()


def test_a_mixture_of_experts(demo: Path) -> None:
    change("config.json", architectures=["Ernie4_5_MoeForCausalLM"], moe_num_experts=64)(demo)
    assert checkpoint.inspect(demo).is_moe


def test_the_template_is_found_wherever_it_stands(demo: Path) -> None:
    (demo / "chat_template.jinja").unlink()
    assert not checkpoint.inspect(demo).has_chat_template
    template = "{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}{% break %}{% endfor %}"
    for inside in (template, [{"name": "default", "template": template}]):
        change("tokenizer_config.json", chat_template=inside)(demo)
        assert checkpoint.inspect(demo).has_chat_template
    # The file outranks what stands inside, so a fault there would never be met.
    change("tokenizer_config.json", chat_template="{{ broken")(demo)
    (demo / "chat_template.jinja").write_text("{{ messages }}")
    assert checkpoint.inspect(demo).has_chat_template


def test_the_layout_of_the_first_release(demo: Path) -> None:
    """A binary tokenizer whose class is remote code: transformers 5 loads it without running any."""
    (demo / "tokenizer.json").unlink()
    (demo / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>")
    remote = ["tokenization_ernie4_5.Ernie4_5_Tokenizer", None]
    change(
        "tokenizer_config.json",
        eos_token="</s>",  # noqa: S106
        tokenizer_class="Ernie4_5_Tokenizer",
        auto_map={"AutoTokenizer": remote},
        backend=None,
    )(demo)
    write("added_tokens.json", json.dumps({"<mask:4>": 4000}).encode())(demo)
    write("special_tokens_map.json", json.dumps({"eos_token": {"content": "</s>", "special": True}}).encode())(demo)
    assert checkpoint.inspect(demo).warnings == ()
