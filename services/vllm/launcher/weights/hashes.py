"""Whether files are those of the hub, by the hashes that the hub gave when they were fetched."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from launcher.errors import BrokenCheckpoint

# For a folder that was not fetched by a client which keeps hashes in names.
MANIFEST = ".launcher-hashes.json"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT = re.compile(r"[0-9a-f]{40}")
_CHUNK_BYTES = 1 << 20


def known(folder: Path) -> dict[Path, str]:
    """The hash of every file of a folder that has a known one: SHA-256, or Git's name of the file.

    Hugging Face's client names a blob by its hash and links to it, or notes it beside a plain folder
    (`hf download --local-dir`); for ModelScope the launcher writes MANIFEST.
    """
    found = {path: value for path, value in _linked(folder) if is_hash(value)}
    found |= {folder / name: value for name, value in _noted(folder) if is_hash(value)}
    manifest = folder / MANIFEST
    if manifest.is_file():
        found |= {folder / name: value for name, value in json.loads(manifest.read_text(encoding="utf-8")).items()}
    return found


def write_manifest(folder: Path, values: Mapping[str, str]) -> None:
    """Keep the hashes of a folder's files."""
    (folder / MANIFEST).write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def check(values: Mapping[Path, str]) -> None:
    """Read every file whole, about a second a gigabyte. Raises BrokenCheckpoint for the first that is another one."""
    for path, value in sorted(values.items()):
        if not path.is_file():
            raise BrokenCheckpoint(f"{path} is missing", "Run `launcher fetch`, which fetches what is missing")
        if not matches(path, value):
            raise BrokenCheckpoint(
                f"{path} is not what the hub has: its hash is not {value}",
                f"Delete {path.resolve()} and run `launcher fetch`, which fetches it again",
            )


def is_hash(value: str) -> bool:
    """Whether a text is a hash of a kind that can be compared."""
    return bool(_SHA256.fullmatch(value) or _GIT.fullmatch(value))


def matches(path: Path, value: str) -> bool:
    """Whether a file has a hash, of the kind that the hash's length tells."""
    return _digest(path, value) == value


def _digest(path: Path, value: str) -> str:
    if _SHA256.fullmatch(value):
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _linked(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in _files(folder.rglob("*")):
        if path.is_symlink():
            yield path, path.readlink().name


def _noted(folder: Path) -> Iterator[tuple[str, str]]:
    notes = folder / ".cache/huggingface/download"
    for path in _files(notes.rglob("*.metadata")):
        # Commit, hash, time: one a line.
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > 1:
            yield str(path.relative_to(notes)).removesuffix(".metadata"), lines[1]


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in paths if path.is_file() or path.is_symlink())
