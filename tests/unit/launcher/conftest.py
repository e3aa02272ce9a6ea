"""A small sound checkpoint, machines without the machines, and a vLLM without vLLM."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from launcher.hardware import GIB, Gpu, Hardware, Host, parse_nvidia_smi
from launcher.installation import Installation

# As `nvidia-smi` prints them for hardware.NVIDIA_SMI, each from an idle card.
SMI = {
    "v100": "0, GPU-5b5b1f4c, Tesla V100-SXM2-16GB, 7.0, 16384, 16145, 570.133.20\n",
    "t4": "0, GPU-0a1b2c3d, Tesla T4, 7.5, 15360, 14915, 580.65.06\n",
    "a10": "0, GPU-91c4d0aa, NVIDIA A10, 8.6, 23028, 22494, 580.65.06\n",
    "h200": "0, GPU-77ab12ef, NVIDIA H200, 9.0, 143771, 143156, 580.65.06\n",
}
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


def gpu(name: str) -> Gpu:
    cards, problem = parse_nvidia_smi(SMI[name])
    assert not problem
    return cards[0]


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


@pytest.fixture
def machine(host: Host) -> Callable[[str], Hardware]:
    """Hardware by the name of its card; `none` for none."""

    def make(card: str) -> Hardware:
        return Hardware((gpu(card),) if card != "none" else (), "", host)

    return make


@pytest.fixture
def installation() -> Callable[[str], Installation]:
    """Pretend that vLLM 0.33 of the given build is there, with the flags that the command may use."""
    flags = frozenset(
        {
            *("--dtype", "--port", "--max-model-len", "--disable-fastapi-docs", "--shutdown-timeout"),
            *("--disable-access-log-for-endpoints", "--max-num-batched-tokens", "--enable-prefix-caching"),
            *(
                "--no-enable-prefix-caching",
                "--enable-expert-parallel",
                "--enable-moe-shared-loras",
                "--load-format",
                "--middleware",
            ),
            *("--compilation-config", "--stream-interval"),
        }
    )

    def make(build: str) -> Installation:
        return Installation("0.33.0", build, ("vllm", "serve"), flags, '"Ernie4_5ForCausalLM"')  # type: ignore[arg-type]

    return make
