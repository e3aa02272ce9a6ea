"""A checkpoint's tokenizer files, without loading a tokenizer: whether they are whole, and which tokens they name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.checkpoint.files import FETCH_AGAIN, LFS_POINTER, read_object, read_optional
from launcher.errors import BrokenCheckpoint

FETCH_TOO = "Fetch the tokenizer files of the model too"
_NAMES = ("tokenizer.json", "tokenizer.model")
# Layouts of other families that vLLM reads by code of their own; nothing in them is looked at here.
_OTHER_NAMES = ("tekken.json", "vocab.json", "tiktoken.model", "*.tiktoken")


@dataclass(frozen=True)
class Tokenizer:
    """What the files say: ids by token, those that were added later apart; no ids where only a binary model has them.

    `special` has the texts of eos_token and the like, as transformers resolves them; `settings` is
    tokenizer_config.json.
    """

    vocabulary: Mapping[str, int]
    added: Mapping[str, int]
    special: Mapping[str, str]
    settings: Mapping[str, Any]

    def id_of(self, token: str) -> int | None:
        """The token's id; None if the files do not tell."""
        return self.added.get(token, self.vocabulary.get(token))


def read(folder: Path) -> Tokenizer:
    """Check every tokenizer file. Raises BrokenCheckpoint, OSError."""
    present = [name for name in (*_NAMES, *_OTHER_NAMES) if any(folder.glob(name))]
    if not present:
        raise BrokenCheckpoint(f"{folder} has no tokenizer ({' or '.join(_NAMES)})", FETCH_TOO)
    settings = _settings(folder, present)
    vocabulary: Mapping[str, int] = {}
    added = dict(_added(settings.get("added_tokens_decoder")))
    more = read_optional(folder / "added_tokens.json")
    if "tokenizer.json" in present:
        content = read_object(folder / "tokenizer.json")
        vocabulary = _vocabulary(folder / "tokenizer.json", content)
        rows = content.get("added_tokens")
        added |= {row["content"]: row["id"] for row in (rows if isinstance(rows, list) else ()) if _is_token(row)}
    elif "tokenizer.model" in present:
        _check_model(folder / "tokenizer.model")
    added |= {text: number for text, number in more.items() if isinstance(number, int)}
    special = {**_texts(read_optional(folder / "special_tokens_map.json")), **_texts(settings)}
    return Tokenizer(vocabulary, added, special, settings)


def _settings(folder: Path, present: list[str]) -> dict[str, Any]:
    if (folder / "tokenizer_config.json").is_file():
        return read_object(folder / "tokenizer_config.json")
    if present[0] in _NAMES:
        raise BrokenCheckpoint(f"{folder} has no tokenizer_config.json", FETCH_TOO)
    return {}


def _vocabulary(path: Path, content: Mapping[str, Any]) -> dict[str, int]:
    """Ids of the model inside a tokenizer.json, which the tokenizers library refuses without these parts."""
    model = content.get("model")
    if not isinstance(model, dict):
        raise BrokenCheckpoint(f"{path} has no model part", FETCH_AGAIN)
    tokens = model.get("vocab")
    if not isinstance(tokens, dict | list) or not tokens:
        raise BrokenCheckpoint(f"{path} has no vocabulary", FETCH_AGAIN)
    if model.get("type") == "BPE" and not isinstance(model.get("merges"), list):
        raise BrokenCheckpoint(f"{path} is of the kind BPE and has no merges", FETCH_AGAIN)
    if isinstance(tokens, dict):
        return {text: number for text, number in tokens.items() if isinstance(number, int)}
    return {
        row[0]: number for number, row in enumerate(tokens) if isinstance(row, list) and row and isinstance(row[0], str)
    }


def _check_model(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(LFS_POINTER))
    if not start:
        raise BrokenCheckpoint(f"{path} is empty", FETCH_AGAIN)
    if start == LFS_POINTER:
        raise BrokenCheckpoint(f"{path} is a Git LFS pointer of a few bytes, not the file itself", FETCH_AGAIN)


def _is_token(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("content"), str) and isinstance(row.get("id"), int)


def _added(table: object) -> dict[str, int]:
    """tokenizer_config.json's table of added tokens, by id."""
    rows = table.items() if isinstance(table, dict) else ()
    return {
        row["content"]: int(number)
        for number, row in rows
        if isinstance(row, dict) and isinstance(row.get("content"), str) and number.isdecimal()
    }


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by their role; each is a text, or an object with the text inside."""
    found = {}
    for role, value in settings.items():
        text = value.get("content") if isinstance(value, dict) else value
        if role.endswith("_token") and isinstance(text, str):
            found[role] = text
    return found
