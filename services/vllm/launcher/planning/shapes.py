"""Sizes of models whose weights are not on this machine, so that a plan can be made before they are fetched."""

import json
from pathlib import Path

from launcher.checkpoint import Checkpoint

_FILE = Path(__file__).with_name("shapes.json")


def known(model: str) -> Checkpoint | None:
    """The published shape of a hub's model, its id in the place of a folder; None for a model that is not listed."""
    shape = json.loads(_FILE.read_text(encoding="utf-8")).get(model)
    if shape is None:
        return None
    experts = shape.get("moe_num_experts", 0)
    return Checkpoint(
        folder=Path(model),
        architecture=shape["architecture"],
        context_tokens=shape["max_position_embeddings"],
        kv_values_per_token=2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * shape["head_dim"],
        dtype=shape["dtype"],
        weight_bytes=shape["weight_bytes"],
        is_moe=bool(experts),
        quantization="",
        has_chat_template=True,
        attention_heads=shape["num_attention_heads"],
        kv_heads=shape["num_key_value_heads"],
        experts=experts,
        longest_context_tokens=shape["max_position_embeddings"],
    )
