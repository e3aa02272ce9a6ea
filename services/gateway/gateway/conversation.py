"""Which requests are turns of one conversation."""

import zlib
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import orjson

END_CHARACTERS = 2048


def conversation_of(fields: Mapping[str, Any]) -> int:
    """Return a number that all turns of a conversation have in common, of what stands before its first answer.

    0 for what is no conversation. It is the same in every process.
    """
    messages = fields.get("messages")
    if not messages:
        return 0
    beginning = takewhile(lambda message: message["role"] != "assistant", messages)
    return zlib.crc32(orjson.dumps([(message["role"], _gist(message.get("content"))) for message in beginning]))


def _gist(content: Any) -> Any:
    """Return what tells a text from others, without writing a megabyte anew: its ends and its length."""
    if isinstance(content, list):
        return [_gist(part["text"]) for part in content]
    if not isinstance(content, str) or len(content) <= 2 * END_CHARACTERS:
        return content
    return content[:END_CHARACTERS], len(content), content[-END_CHARACTERS:]
