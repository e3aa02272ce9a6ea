"""Chainlit's OAuth providers, set up by a file of OAUTH_* lines instead of the environment, which others can read."""

import re
from pathlib import Path

from chat_ui.accounts.errors import LoginError

LINE = re.compile(r"(OAUTH_[A-Z0-9_]+)\s*=\s*(.*)")
# It posts its answer from its own site, and no other site may post to this page.
UNSUPPORTED = "OAUTH_AZURE_AD_HYBRID_"


def read_providers(path: str) -> dict[str, str]:
    """Return the variables of the file; raises `LoginError` with what is wrong, but never with a value."""
    setting = f"CHAT_UI_OAUTH_FILE={path}"
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise LoginError(f"{setting}: {error}") from error
    variables = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = LINE.fullmatch(line.strip())
        if found is None:
            raise LoginError(f"{setting}: line {number} is not NAME=value with a name that begins with OAUTH_")
        if found[1].startswith(UNSUPPORTED):
            raise LoginError(f"{setting}: line {number}: azure-ad-hybrid does not work here, use OAUTH_AZURE_AD_*")
        variables[found[1]] = found[2].strip().strip("\"'")
    return variables
