"""Makes a checkpoint of a few megabytes that a real vLLM starts: a mixture of experts, or the demo model quantized.

    .venv-vllm/bin/python models/tiny/make.py moe FOLDER
    .venv-vllm/bin/python models/tiny/make.py awq|gptq|fp8|compressed-tensors FOLDER

The mixture of experts has random weights (fixed seed) and the architecture of baidu/ERNIE-4.5-21B-A3B-PT; what it says
means nothing. The quantized ones are the demo model's own weights, rounded to the nearest value; they answer like it.
Needs torch and safetensors, which come with vLLM.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

DEMO = Path(__file__).resolve().parents[1] / "demo"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
SEED = 45
GROUP = 128
# AutoAWQ's order of eight 4-bit columns in a 32-bit word.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
GPTQ_ORDER = tuple(range(8))

Tensors = dict[str, torch.Tensor]


def make(kind: str, folder: Path) -> None:
    """Write config, tokenizer and weights of one kind into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER:
        shutil.copy(DEMO / name, folder / name)
    config = json.loads((DEMO / "config.json").read_text(encoding="utf-8"))
    if kind == "moe":
        config |= mixture_config()
        tensors = mixture(config)
    else:
        settings, quantize = QUANTIZED[kind]
        config["quantization_config"] = settings
        tensors = quantized(quantize)
        if kind in {"awq", "gptq"}:
            config["dtype"] = "float16"
            tensors = {
                name: value.half() if value.dtype == torch.bfloat16 else value for name, value in tensors.items()
            }
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def mixture_config() -> dict[str, Any]:
    """Return what differs from the demo's config: one dense layer and two of experts, as in the 21B model's pattern."""
    return {
        "architectures": ["Ernie4_5_MoeForCausalLM"],
        "model_type": "ernie4_5_moe",
        "num_hidden_layers": 3,
        "moe_num_experts": 8,
        "moe_num_shared_experts": 2,
        "moe_k": 2,
        "moe_intermediate_size": 128,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": 2,
        "moe_layer_interval": 1,
    }


def mixture(config: dict[str, Any]) -> Tensors:
    """Return random weights under the names that the model's own repositories use."""
    hidden, heads, kv_heads = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    head, experts, width = (config[key] for key in ("head_dim", "moe_num_experts", "moe_intermediate_size"))
    random = torch.Generator().manual_seed(SEED)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=random) * 0.02).bfloat16()

    def mlp(prefix: str, size: int) -> Tensors:
        return {
            f"{prefix}.gate_proj.weight": matrix(size, hidden),
            f"{prefix}.up_proj.weight": matrix(size, hidden),
            f"{prefix}.down_proj.weight": matrix(hidden, size),
        }

    tensors = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden),
        "model.norm.weight": torch.ones(hidden).bfloat16(),
    }
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        tensors |= {
            f"{layer}.input_layernorm.weight": torch.ones(hidden).bfloat16(),
            f"{layer}.post_attention_layernorm.weight": torch.ones(hidden).bfloat16(),
            f"{layer}.self_attn.q_proj.weight": matrix(heads * head, hidden),
            f"{layer}.self_attn.k_proj.weight": matrix(kv_heads * head, hidden),
            f"{layer}.self_attn.v_proj.weight": matrix(kv_heads * head, hidden),
            f"{layer}.self_attn.o_proj.weight": matrix(hidden, heads * head),
        }
        if i < config["moe_layer_start_index"]:
            tensors |= mlp(f"{layer}.mlp", config["intermediate_size"])
            continue
        tensors[f"{layer}.mlp.gate.weight"] = matrix(experts, hidden).float()
        tensors[f"{layer}.mlp.moe_statics.e_score_correction_bias"] = torch.zeros(1, experts)
        tensors |= mlp(f"{layer}.mlp.shared_experts", width * config["moe_num_shared_experts"])
        for expert in range(experts):
            tensors |= mlp(f"{layer}.mlp.experts.{expert}", width)
    return tensors


def quantized(quantize: Callable[[str, torch.Tensor], Tensors]) -> Tensors:
    """Return the demo's weights with every projection quantized; embedding and norms stay as they are."""
    tensors: Tensors = {}
    for name, value in load_file(DEMO / "model.safetensors").items():
        projection = name.endswith("_proj.weight")
        tensors |= quantize(name.removesuffix(".weight"), value.float()) if projection else {name: value}
    return tensors


def four_bits(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round to sixteen values a group of inputs, symmetric around 8; return values and scales, inputs first."""
    groups = weight.T.reshape(-1, GROUP, weight.shape[0])
    scales = groups.abs().amax(dim=1, keepdim=True).clamp(min=1e-6) / 7
    values = (groups / scales).round().add(8).clamp(0, 15).to(torch.int32)
    return values.reshape(weight.shape[1], weight.shape[0]), scales.squeeze(1).half()


def pack(values: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Put eight neighbours of each row into a 32-bit word, the one that `order` names first in the lowest bits."""
    parts = values.reshape(values.shape[0], -1, 8).to(torch.int64)
    words = torch.zeros(parts.shape[:2], dtype=torch.int64)
    for place, source in enumerate(order):
        words |= parts[:, :, source] << (4 * place)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def awq(name: str, weight: torch.Tensor) -> Tensors:
    """AutoAWQ's layout: words along the outputs."""
    values, scales = four_bits(weight)
    return {
        f"{name}.qweight": pack(values, AWQ_ORDER),
        f"{name}.qzeros": pack(torch.full(scales.shape, 8), AWQ_ORDER),
        f"{name}.scales": scales,
    }


def gptq(name: str, weight: torch.Tensor) -> Tensors:
    """AutoGPTQ's layout: words along the inputs, zero points stored less one."""
    values, scales = four_bits(weight)
    return {
        f"{name}.qweight": pack(values.T, GPTQ_ORDER).T,
        f"{name}.qzeros": pack(torch.full(scales.shape, 7), GPTQ_ORDER),
        f"{name}.scales": scales,
        f"{name}.g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // GROUP,
    }


def fp8(name: str, weight: torch.Tensor) -> Tensors:
    """One scale a tensor."""
    scale = weight.abs().max() / torch.finfo(torch.float8_e4m3fn).max
    return {f"{name}.weight": (weight / scale).to(torch.float8_e4m3fn), f"{name}.weight_scale": scale.reshape(1)}


def int8(name: str, weight: torch.Tensor) -> Tensors:
    """One scale an output."""
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-6) / 127
    return {f"{name}.weight": (weight / scale).round().to(torch.int8), f"{name}.weight_scale": scale.bfloat16()}


QUANTIZED: dict[str, tuple[dict[str, Any], Callable[[str, torch.Tensor], Tensors]]] = {
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}, awq),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True}, gptq),
    "fp8": ({"quant_method": "fp8", "activation_scheme": "dynamic"}, fp8),
    "compressed-tensors": (
        {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 8,
                        "type": "int",
                        "symmetric": True,
                        "strategy": "channel",
                        "dynamic": False,
                    },
                    "input_activations": {
                        "num_bits": 8,
                        "type": "int",
                        "symmetric": True,
                        "strategy": "token",
                        "dynamic": True,
                    },
                }
            },
        },
        int8,
    ),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a tiny checkpoint for tests.")
    parser.add_argument("kind", choices=["moe", *QUANTIZED])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    make(options.kind, options.folder)
