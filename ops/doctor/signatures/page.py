"""The chat page (Chainlit)."""

import re

from ops.doctor.signature import Signature, Source, Trouble

_PAGE = (Source.PAGE,)

SIGNATURES = (
    Signature(
        "page-origin",
        Trouble.CONNECTION,
        _PAGE,
        re.compile(r"(?P<origin>https?://\S+) is not an accepted origin"),
        "The page is opened at {origin}, which it does not know as its own address: it loads and stays mute.",
        "Add it to CHAT_UI_ALLOWED_ORIGINS in .env, then make up.",
    ),
    Signature(
        "page-not-writable",
        Trouble.START,
        _PAGE,
        re.compile(r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>\S+)'"),
        "The page's server may not write {path}.",
        "Use this project's image and compose file; they write to /tmp alone.",
    ),
)
