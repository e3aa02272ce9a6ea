"""Whether a generated text can end, and whether the files agree on the special tokens.

vLLM stops at the tokenizer's own eos_token and at every eos_token_id of generation_config.json; where that file is
absent, transformers makes one from config.json (vllm/sampling_params.py, update_from_generation_config).
"""

from collections.abc import Mapping
from typing import Any

from launcher.checkpoint.tokenizer import Tokenizer
from launcher.errors import BrokenCheckpoint

_ROLES = ("bos_token_id", "eos_token_id", "pad_token_id")
# Some sound checkpoints have a few tokens without a row in the embedding; a whole other tokenizer has thousands.
_MOST_BEYOND = 64


def check(config: Mapping[str, Any], generation: Mapping[str, Any] | None, tokenizer: Tokenizer) -> list[str]:
    """What is odd and tolerated, a line each; `generation` is None if the file is absent.

    Raises BrokenCheckpoint if no stop token is one that the model can generate, so that every answer would be endless,
    or if the tokenizer is of a larger model.
    """
    size: int = config["vocab_size"]
    beyond = [number for number in tokenizer.vocabulary.values() if number >= size]
    if len(beyond) > _MOST_BEYOND:
        raise BrokenCheckpoint(
            f"the tokenizer has token ids up to {max(beyond)}, and config.json a vocab_size of {size}",
            "The tokenizer is of another model: fetch tokenizer and weights of one revision",
        )
    _check_end(config, generation, tokenizer)
    return [
        *_absent(generation),
        *_disagreements(config, generation or {}, tokenizer),
        *_outside(config, generation or {}, tokenizer),
    ]


def _check_end(config: Mapping[str, Any], generation: Mapping[str, Any] | None, tokenizer: Tokenizer) -> None:
    own = tokenizer.special.get("eos_token")
    if own is not None and tokenizer.id_of(own) is None and not tokenizer.vocabulary:
        # Only a binary model knows the ids.
        return
    known = None if own is None else tokenizer.id_of(own)
    stops = {*_ids(config if generation is None else generation), *([] if known is None else [known])}
    if any(0 <= stop < config["vocab_size"] for stop in stops):
        return
    named = [f"eos_token {own}"] if own else []
    named += [f"eos_token_id {stop}" for stop in sorted(stops)]
    fault = f"{' and '.join(named)} are not in the vocabulary" if named else "no file names an end of text"
    raise BrokenCheckpoint(
        f"{fault}: no answer would ever end",
        "Set eos_token in tokenizer_config.json and eos_token_id in generation_config.json, or fetch them again",
    )


def _absent(generation: Mapping[str, Any] | None) -> list[str]:
    return ["there is no generation_config.json: vLLM samples by its own defaults"] if generation is None else []


def _disagreements(config: Mapping[str, Any], generation: Mapping[str, Any], tokenizer: Tokenizer) -> list[str]:
    found = []
    text = tokenizer.special.get("eos_token")
    number = tokenizer.id_of(text) if text else None
    if text and number is None and tokenizer.vocabulary:
        found.append(f"the tokenizer has no {text}, which is its eos_token: it is added with an id beyond the model's")
    by_config, by_generation = _ids(config), _ids(generation)
    if by_generation and by_config and not by_config & by_generation:
        found.append(f"eos_token_id is {_list(by_config)} in config.json, {_list(by_generation)} in generation_config")
    elif number is not None and number not in {*by_config, *by_generation} and (by_config or by_generation):
        found.append(f"eos_token {text} is {number} for the tokenizer, {_list(by_config | by_generation)} for the rest")
    return found


def _outside(config: Mapping[str, Any], generation: Mapping[str, Any], tokenizer: Tokenizer) -> list[str]:
    size: int = config["vocab_size"]
    found = [
        f"{role} {value} in {name} is outside the vocabulary of {size}"
        for name, source in (("config.json", config), ("generation_config.json", generation))
        for role in _ROLES
        for value in sorted(_ids(source, role))
        if not 0 <= value < size
    ]
    tokens = {**tokenizer.vocabulary, **tokenizer.added}
    beyond = sorted(text for text, number in tokens.items() if number >= size)
    if beyond:
        found.append(f"the tokenizer has {beyond[0]} beyond the vocabulary of {size}: a prompt with it fails")
    return found


def _ids(source: Mapping[str, Any], role: str = "eos_token_id") -> set[int]:
    value = source.get(role)
    return {item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)}


def _list(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
