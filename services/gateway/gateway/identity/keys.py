"""The file of API keys: names, tiers and hashes, read anew when it changes.

A line is a comment (`# …`), a tier, or a key:

    tier team requests=600/minute tokens=off streams=32
    key alice team sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

What a tier does not name is as for everybody; the tier `default` is there without a line. Keys are random numbers of
256 bits, so SHA-256 without salt or rounds is right: nobody can try that many, and a check costs a microsecond.
"""

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.rates import Allowance, parse_count, parse_rate

DEFAULT_TIER = "default"
# A change takes effect within this time; a look costs 2 µs.
LOOK_SECONDS = 1.0
MAX_FILE_BYTES = 4_194_304
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_SHOWN_CHARACTERS = 64
_KEY_WORDS = 4
# Enough of a hash to find its holder by; all of it is compared then, in constant time.
_LOOKED_UP_BYTES = 8
_log = logging.getLogger("gateway.keys")


class KeysError(Exception):
    """The file of keys cannot be used; the message is one line that names the line and the cure."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who a key belongs to, what its tier allows, and the key's hash."""

    name: str
    allowance: Allowance
    digest: bytes


def parse_keys(text: str, default: Allowance) -> dict[bytes, Holder]:
    """Return the holders by the beginning of their key's hash; raise KeysError that names the first line at fault."""
    tiers = {DEFAULT_TIER: default}
    keys: list[tuple[int, str, str, bytes]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if words[0] == "tier":
                tiers[_new_name(words, tiers)] = _allowance(words[2:], default)
            else:
                keys.append((number, *_key(words)))
        except ValueError as error:
            raise KeysError(f"line {number} is wrong: {error}.") from None
    return _holders(keys, tiers)


def _holders(keys: list[tuple[int, str, str, bytes]], tiers: dict[str, Allowance]) -> dict[bytes, Holder]:
    holders: dict[bytes, Holder] = {}
    names: set[str] = set()
    for number, name, tier, digest in keys:
        if tier not in tiers:
            raise KeysError(f"line {number} is wrong: there is no tier {tier!r}; add a line 'tier {tier} …'.")
        if name in names or digest[:_LOOKED_UP_BYTES] in holders:
            raise KeysError(f"line {number} is wrong: its name or key stands above already; give each once.")
        names.add(name)
        holders[digest[:_LOOKED_UP_BYTES]] = Holder(name, tiers[tier], digest)
    return holders


def _new_name(words: list[str], tiers: dict[str, Allowance]) -> str:
    name = words[1] if len(words) > 1 else ""
    if not _NAME.fullmatch(name):
        raise ValueError("a tier needs a name of letters, digits and . _ @ -")
    if name in tiers:
        raise ValueError(f"there is a tier {name!r} already")
    return name


def _allowance(words: list[str], default: Allowance) -> Allowance:
    allowance = default
    for word in words:
        try:
            allowance = _with_limit(allowance, word)
        except ValueError as error:
            raise ValueError(f"{word[:_SHOWN_CHARACTERS]!r}: {error}") from None
    return allowance


def _with_limit(allowance: Allowance, word: str) -> Allowance:
    limit, _, value = word.partition("=")
    if limit == "requests":
        return replace(allowance, requests=parse_rate(value))
    if limit == "tokens":
        return replace(allowance, tokens=parse_rate(value))
    if limit == "streams":
        return replace(allowance, streams=parse_count(value))
    raise ValueError("there are requests=, tokens= and streams=")


def _key(words: list[str]) -> tuple[str, str, bytes]:
    digest = _HASH.fullmatch(words[-1])
    if words[0] != "key" or len(words) != _KEY_WORDS or not digest or not _NAME.fullmatch(words[1]):
        raise ValueError("write 'key NAME TIER sha256:…' (`make key NAME=…` does), 'tier NAME …' or '# …'")
    return words[1], words[2], bytes.fromhex(digest[1])


class Keys:
    """The keys of a file; raises KeysError if it cannot be read at first, later on the old ones stay."""

    def __init__(self, path: Path, default: Allowance, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._default = default
        self._clock = clock
        self._looked_at = clock()
        self._version = _version_of(path)
        self._holders = self._load()

    def holder_of(self, key: bytes) -> Holder | None:
        """Return who a key belongs to, None if nobody; how long that takes tells nothing of how much of it is right."""
        self._look()
        digest = hashlib.sha256(key).digest()
        holder = self._holders.get(digest[:_LOOKED_UP_BYTES])
        return holder if holder and hmac.compare_digest(holder.digest, digest) else None

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        version = _version_of(self._path)
        if version == self._version:
            return
        self._version = version
        fields: dict[str, object]
        try:
            self._holders = self._load()
        except KeysError as error:
            fields = {"error": str(error)}
            _log.error("keys_kept", extra={"fields": fields})
        else:
            fields = {"keys": len(self._holders)}
            _log.info("keys_read", extra={"fields": fields})

    def _load(self) -> dict[bytes, Holder]:
        try:
            # Some editors begin a file with a byte order mark.
            with self._path.open(encoding="utf-8-sig") as file:
                text = file.read(MAX_FILE_BYTES + 1)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise KeysError(f"{self._path} cannot be read: {reason}. Make a key with `make key NAME=…`.") from None
        if len(text) > MAX_FILE_BYTES:
            raise KeysError(f"{self._path} is larger than {MAX_FILE_BYTES} bytes.")
        try:
            return parse_keys(text, self._default)
        except KeysError as error:
            raise KeysError(f"{self._path}, {error}") from None


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever the file does, None while there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  (half the time of Path.stat, on the way of requests)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
