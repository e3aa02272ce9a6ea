"""A small sound checkpoint, machines without the machines, and a vLLM without vLLM."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launcher.checkpoint import Checkpoint
from launcher.hardware import GIB, Hardware, Host, record
from launcher.installation import Installation
from launcher.planning import shapes
from launcher.planning.plan import Plan

MACHINES = Path(__file__).resolve().parents[2] / "hardware"
CONFIG = {
    "architectures": ["Ernie4_5ForCausalLM"],
    "model_type": "ernie4_5",
    "dtype": "bfloat16",
    "hidden_size": 1024,
    "num_hidden_layers": 18,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 103424,
    "max_position_embeddings": 131072,
    "eos_token_id": 2,
}
TOKENIZER = {"version": "1.0", "model": {"type": "BPE", "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2}, "merges": []}}
TENSOR_BYTES = 64

WriteWeights = Callable[..., Path]


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_weights(path: Path, names: tuple[str, ...] = ("model.norm.weight", "model.extra.weight")) -> Path:
    """Write a real safetensors file with one small tensor for each name."""
    entries: Mapping[str, object] = {
        "__metadata__": {"format": "pt"},
        **{
            name: {
                "dtype": "BF16",
                "shape": [TENSOR_BYTES // 2],
                "data_offsets": [i * TENSOR_BYTES, (i + 1) * TENSOR_BYTES],
            }
            for i, name in enumerate(names)
        },
    }
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(TENSOR_BYTES * len(names)))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with ERNIE-4.5-0.3B's config, a tokenizer, and weights of a few bytes."""
    folder = tmp_path / "model"
    folder.mkdir()
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "tokenizer.json", TOKENIZER)
    write_json(folder / "tokenizer_config.json", {"eos_token": "</s>", "chat_template": "{{ messages }}"})
    write_json(folder / "generation_config.json", {"eos_token_id": 2})
    write_weights(folder / "model.safetensors")
    return folder


@pytest.fixture
def host() -> Host:
    """Two cores with AVX-512 and 24 GiB."""
    return Host("x86_64", 2, 24 * GIB, 20 * GIB, GIB, frozenset({"avx2", "avx512f"}))


def published(model: str) -> Checkpoint:
    """The published shape of a model."""
    shape = shapes.known(model)
    assert shape is not None
    return shape


def with_cards(hardware: Hardware, number: int, **changes: Any) -> Hardware:
    """The machine with so many of its first card, changed."""
    card = hardware.gpus[0]
    cards = tuple(replace(card, index=index, uuid=f"GPU-{index}", **changes) for index in range(number))
    return replace(hardware, gpus=cards)


def assert_it_fits(plan: Plan, hardware: Hardware) -> None:
    """All engines fit together, and each one's check at its start passes when the others run already."""
    for card in hardware.gpus:
        here = sum(card.selector in cards for cards in plan.cards)
        assert here * (plan.gpu_bytes or 0) <= card.memory_free_bytes
        left = card.memory_free_bytes - (here - 1) * (plan.gpu_bytes or 0)
        assert not here or (plan.memory_utilization or 0) * card.memory_total_bytes <= left


@pytest.fixture
def ernie() -> Checkpoint:
    """The shape and size of ERNIE-4.5-0.3B-PT."""
    return published("baidu/ERNIE-4.5-0.3B-PT")


@pytest.fixture
def mixture() -> Checkpoint:
    """The shape and size of ERNIE-4.5-21B-A3B-PT."""
    return published("baidu/ERNIE-4.5-21B-A3B-PT")


@pytest.fixture
def machine(host: Host) -> Callable[[str], Hardware]:
    """A machine of tests/hardware by its name; `none` for one without a card."""

    def make(name: str) -> Hardware:
        return Hardware((), "", host) if name == "none" else record.read(MACHINES / f"{name}.json")

    return make


@pytest.fixture
def installation() -> Callable[[str], Installation]:
    """Pretend that vLLM 0.33 of the given build is there, with the flags that the command may use."""
    flags = frozenset(
        {
            *("--dtype", "--port", "--max-model-len", "--disable-fastapi-docs", "--shutdown-timeout"),
            *("--disable-uvicorn-access-log", "--max-num-batched-tokens", "--enable-prefix-caching"),
            *(
                "--no-enable-prefix-caching",
                "--enable-expert-parallel",
                "--enable-moe-shared-loras",
                "--load-format",
                "--middleware",
            ),
            *("--compilation-config", "--stream-interval", "--api-server-count"),
        }
    )

    def make(build: str) -> Installation:
        return Installation(
            "0.33.0", build, ("vllm", "serve"), flags, '"Ernie4_5ForCausalLM" "Ernie4_5_MoeForCausalLM"'
        )  # type: ignore[arg-type]

    return make
