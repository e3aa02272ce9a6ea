"""Which requests are turns of one conversation."""

import zlib
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import orjson


def conversation_of(fields: Mapping[str, Any]) -> int:
    """Return a number that all turns of a conversation have in common, of what stands before its first answer.

    0 for what is no conversation. It is the same in every process.
    """
    messages = fields.get("messages")
    if not messages:
        return 0
    beginning = list(takewhile(lambda message: message["role"] != "assistant", messages))
    return zlib.crc32(orjson.dumps(beginning))
