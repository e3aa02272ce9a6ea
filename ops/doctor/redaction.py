"""Takes secrets, prompts and people's addresses out of what is shown and packed."""

import re
from collections.abc import Mapping

from ops.doctor.configuration import is_secret

HIDDEN = "***"
SHORTEST_SECRET = 6
_PATTERNS = (
    (re.compile(r"\b(?:sk-|hf_|ms-)[A-Za-z0-9_-]{8,}"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"(?i)\b((?:api[-_]?key|token|password|passwd|secret|authorization)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]{4,}"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"://[^\s/:@]*:[^\s/@]+@"), f"://{HIDDEN}@"),
    # What people wrote and what was answered: to the end of the line, since it may hold quotes of every kind.
    (
        re.compile(
            r"(?i)([\"']?\b(?:prompt|messages|content|prompt_token_ids|input_ids|text)[\"']?\s*[=:]\s*(?=[\"'\[{])).*"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r'("client":")[^"]*'), rf"\1{HIDDEN}"),
    (re.compile(r"(\bclient: )[^\s,]+"), rf"\1{HIDDEN}"),
)


class Redactor:
    """Knows the secret values of an environment, and what secrets look like."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = {value for name, value in environment.items() if is_secret(name) and len(value) >= SHORTEST_SECRET}
        self._values = sorted(values, key=len, reverse=True)

    def clean(self, line: str) -> str:
        """Return the line without what nobody may see."""
        for value in self._values:
            line = line.replace(value, HIDDEN)
        for pattern, put in _PATTERNS:
            line = pattern.sub(put, line)
        return line
