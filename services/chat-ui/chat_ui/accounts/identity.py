"""Who a person is, and the cookie that says so: Chainlit's own, signed with a secret of this installation."""

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

import jwt

COOKIE = "access_token"
ALGORITHM = "HS256"

# Whose request is being served; empty for a stranger's. Set by the gate, inherited by what the request starts.
PERSON: ContextVar[str] = ContextVar("person", default="")


@dataclass(frozen=True, slots=True)
class Identity:
    """A person: `name` is what conversations are kept under, `kind` how the person came in."""

    name: str
    kind: str
    shown: str
    # What must still hold for the cookie to count, as the present password's stamp.
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a cookie says, and since when."""

    identity: Identity
    made_at: float = field(default_factory=time.time)


class Passes:
    """Makes and reads the cookie's value; `secret` signs it."""

    def __init__(self, secret: str, days: float) -> None:
        self._secret = secret
        self.lifetime_seconds = int(days * 86_400)

    def write(self, identity: Identity) -> str:
        """Return a value that Chainlit reads as its own."""
        now = int(time.time())
        claims = {
            "identifier": identity.name,
            "display_name": identity.shown,
            "metadata": {"kind": identity.kind, "proof": identity.proof},
            "iat": now,
            "exp": now + self.lifetime_seconds,
        }
        return jwt.encode(claims, self._secret, algorithm=ALGORITHM)

    def read(self, cookies: str) -> Pass | None:
        """Return what the cookie of a request says; None for none, a forged or an expired one."""
        try:
            claims = jwt.decode(_token(cookies), self._secret, algorithms=[ALGORITHM])
            metadata = claims["metadata"]
            identity = Identity(
                claims["identifier"], metadata["kind"], claims.get("display_name") or "", metadata.get("proof", "")
            )
            return Pass(identity, float(claims["iat"]))
        except (jwt.InvalidTokenError, CookieError, KeyError, TypeError, ValueError):
            return None


def without_pass(cookies: str) -> str:
    """Return a Cookie header less what Chainlit would take for a pass, whole or in parts."""
    parts = (part.strip() for part in cookies.split(";"))
    return "; ".join(part for part in parts if not part.partition("=")[0].strip().startswith(COOKIE))


def _token(cookies: str) -> str:
    # Chainlit cuts a long one into parts; none of ours is that long.
    return SimpleCookie(cookies)[COOKIE].value
