"""The file of accounts: a name and the hash of a password a line, as `make account` writes it."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from chat_ui.accounts.errors import LoginError

logger = logging.getLogger("chat_ui")

NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
# The longest that is hashed: a password is no way to keep the processor busy.
PASSWORD_CHARACTERS = 1024
# 32 MiB and about 0.2 s for each (OWASP's second choice of scrypt's parameters, N=2^15 r=8 p=3); two at a time.
PARAMETERS = (15, 8, 3)
MEMORY_BYTES = 128 * 1024 * 1024
AT_A_TIME = 2


@dataclass(frozen=True, slots=True)
class Hash:
    """A password's hash with what it was made by: log2 of N, r and p of scrypt, and the salt."""

    parameters: tuple[int, int, int]
    salt: bytes
    digest: bytes

    @property
    def stamp(self) -> str:
        """A word that changes with the password and tells nothing of it."""
        return hashlib.sha256(self.salt + self.digest).hexdigest()[:16]

    def fits(self, password: str) -> bool:
        """Compare, in the same time whatever the password."""
        made = hash_password(password, self.parameters, self.salt, len(self.digest))
        return hmac.compare_digest(made, self.digest)


def hash_password(password: str, parameters: tuple[int, int, int], salt: bytes, size: int = 32) -> bytes:
    """Return scrypt's digest of a password."""
    log2_n, r, p = parameters
    return hashlib.scrypt(
        password.encode("utf-8", "replace"), salt=salt, n=1 << log2_n, r=r, p=p, maxmem=MEMORY_BYTES, dklen=size
    )


def parse(line: str) -> tuple[str, Hash]:
    """Read `NAME scrypt:LOG2N:R:P:SALT:DIGEST`, salt and digest in base64; raises `ValueError`."""
    name, _, rest = line.partition(" ")
    kind, *numbers, salt, digest = rest.strip().split(":")
    log2_n, r, p = (int(number) for number in numbers)
    if not NAME.fullmatch(name) or kind != "scrypt" or not (10 <= log2_n <= 17 and r == 8 and 1 <= p <= 16):  # noqa: PLR2004 - scrypt's own
        raise ValueError
    return name, Hash((log2_n, r, p), base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True))


class PasswordFile:
    """The accounts of a file, read again when it changes: without a line nobody stays in past the next request."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._accounts: dict[str, Hash] = {}
        self._hashing = asyncio.Semaphore(AT_A_TIME)
        # An unknown name costs what a known one costs.
        self._nobody = Hash(PARAMETERS, secrets.token_bytes(16), secrets.token_bytes(32))

    def load(self) -> None:
        """Read the file; raises `LoginError` with the line that is wrong."""
        accounts = {}
        try:
            status = self._path.stat()
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise LoginError(
                f"CHAT_UI_ACCOUNTS_FILE={self._path}: {error}. Make it with make account NAME=..."
            ) from error
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                name, password_hash = parse(line)
            except (ValueError, binascii.Error) as error:
                raise LoginError(f"CHAT_UI_ACCOUNTS_FILE={self._path}: line {number} is no account") from error
            accounts[name] = password_hash
        self._accounts = accounts
        self._seen = (status.st_mtime_ns, status.st_size, status.st_ino)

    def stamp(self, name: str) -> str:
        """Return the stamp of an account's present password, empty if there is no such account."""
        self._refresh()
        known = self._accounts.get(name)
        return known.stamp if known else ""

    async def check(self, name: str, password: str) -> str:
        """Return the account's stamp if the password is right, else nothing; as slow for a name that is not there."""
        self._refresh()
        known = self._accounts.get(name, self._nobody)
        async with self._hashing:
            fits = await asyncio.to_thread(known.fits, password[:PASSWORD_CHARACTERS])
        return known.stamp if fits and len(password) <= PASSWORD_CHARACTERS and known is not self._nobody else ""

    def _refresh(self) -> None:
        """Take over a changed file; one that cannot be read lets nobody in who was not in before."""
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_size, status.st_ino) == self._seen:
                return
            self.load()
        except (OSError, LoginError) as error:
            if self._seen is not None:
                logger.error("the accounts stay as they were: %s", error)  # noqa: TRY400 - its text says it all
            self._seen = None
