"""A checkpoint's chat template: where it stands, and whether it parses."""

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.checkpoint.files import read_object, read_text
from launcher.errors import BrokenCheckpoint

_FILE = "chat_template.jinja"
# Read by transformers' processors only, but a sign that the model chats.
_OLD_FILE = "chat_template.json"
# A tag of transformers' own around an assistant's words; Jinja itself does not know it.
_GENERATION = re.compile(r"\{%[-+]?\s*(?:end)?generation\s*[-+]?%\}")


def check(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Whether there is one; `settings` is tokenizer_config.json, which the file outranks. Raises BrokenCheckpoint."""
    if (folder / _FILE).is_file():
        _parse(folder / _FILE, read_text(folder / _FILE))
        return True
    inside = settings.get("chat_template")
    named = inside if isinstance(inside, list) else [{"template": inside}]
    for row in named:
        text = row.get("template") if isinstance(row, dict) else None
        if isinstance(text, str):
            _parse(folder / "tokenizer_config.json", text)
    if (folder / _OLD_FILE).is_file():
        read_object(folder / _OLD_FILE)
        return True
    return bool(inside)


def _parse(path: Path, text: str) -> None:
    try:
        jinja: Any = importlib.import_module("jinja2")
    except ModuleNotFoundError:
        # It comes with vLLM, and without vLLM nothing is served.
        return
    try:
        jinja.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(_GENERATION.sub("", text))
    except jinja.TemplateSyntaxError as error:
        raise BrokenCheckpoint(
            f"the chat template in {path} does not parse (line {error.lineno}: {error.message})",
            "Every chat request would fail: correct it, or fetch the file again",
        ) from error
