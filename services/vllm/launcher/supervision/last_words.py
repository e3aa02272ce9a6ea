"""What an engine leaves behind at an abnormal end: one JSON file, for people and for `make doctor`.

Neither the environment nor a key that stands in it or on the command line is written.
"""

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = "last-words"
_KEPT_FILES = 5
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
# As in HTTPS_PROXY=http://user:password@proxy:3128.
_PASSWORD_IN_URL = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
_SECRET_FLAG = re.compile(r"^--(?:api-key|hf-token|.*password|.*secret)$")
# Shorter values are too common to be replaced everywhere.
_SHORTEST_SECRET = 6
_HIDDEN = "***"

log = logging.getLogger(__name__)


def place(cache_dir: str, environment: Mapping[str, str]) -> Path:
    """The launcher's folder for what outlives it: in the engine's cache, or in the user's."""
    if cache_dir:
        return Path(cache_dir)
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache"
    return Path(cache) / "ernie-engine"


def hide_secrets(value: Any, secrets: Iterable[str]) -> Any:
    """Return the same structure with these texts replaced."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _HIDDEN)
        return value
    if isinstance(value, Mapping):
        return {key: hide_secrets(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_secrets(item, secrets) for item in value]
    return value


def find_secrets(environment: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """Texts that must not be written, the longest first: what a name says is one, and passwords in addresses."""
    found = {text for name, text in environment.items() if _SECRET_NAME.search(name)}
    found |= {password for text in (*environment.values(), *argv) for password in _PASSWORD_IN_URL.findall(text)}
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        flag, _, value = word.partition("=")
        if _SECRET_FLAG.match(flag):
            found.add(value or following)
    return sorted((text for text in found if len(text) >= _SHORTEST_SECRET), key=len, reverse=True)


def write(folder: Path, words: Mapping[str, Any], secrets: Iterable[str]) -> Path | None:
    """Write the file below `folder`, drop the oldest of more than five, and return it; None if that failed."""
    place = folder / FOLDER
    seconds, rest = divmod(time.time_ns(), 10**9)
    path = place / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(seconds))}-{rest // 1000:06}.json"
    text = json.dumps(hide_secrets(words, list(secrets)), indent=1, ensure_ascii=False)
    try:
        place.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        # A command line may hold bytes that are no UTF-8.
        fresh.write_text(text, encoding="utf-8", errors="backslashreplace")
        fresh.replace(path)
        for old in _files(folder)[:-_KEPT_FILES]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the last words could not be written below %s: %s", place, error)
        return None
    return path


def newest(folder: Path) -> dict[str, Any] | None:
    """The newest file's content; None if there is none that can be read."""
    for path in reversed(_files(folder)):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read: %s", path, error)
            continue
        if isinstance(found, dict):
            return found
    return None


def as_text(words: Mapping[str, Any]) -> str:
    """A file's content as people read it: the reason first, the engines' last lines at the end."""
    lines = [
        f"{words.get('time', '?')}: {words.get('reason', '?')}",
        f"exit code {words.get('exit_code')}, stage {words.get('stage')}, up {words.get('uptime_seconds')} s",
        f"vLLM {words.get('vllm')}",
        *(f"command: {command}" for command in words.get("commands") or []),
    ]
    titles = ("cards", "card_notes", "memory")
    lines += [f"{title}: {json.dumps(words.get(title), ensure_ascii=False)}" for title in titles]
    for process in words.get("processes") or []:
        lines.append(f"process {process['pid']} {process['name']}: {process.get('state')} in {process.get('waits_in')}")
        lines += [f"    {state}" for state in process.get("thread_states", [])]
    for name, log_lines in (words.get("log") or {}).items():
        lines += [f"--- {name} ---", *log_lines]
    return "\n".join(lines) + "\n"


def _files(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("*.json"))
