"""Names for requests that no two have, in this process or any other."""

import secrets

ID_BYTES = 16
# Random bytes are asked for so many names at a time: a system call for each costs a thirtieth of a request's CPU time.
MADE_AT_ONCE = 256


class RequestIds:
    """Makes names of 128 random bits. They are made when first asked for: fork before that."""

    def __init__(self) -> None:
        self._made: list[str] = []

    def next(self) -> str:
        """Return a name of 32 lower-case hexadecimal digits."""
        if not self._made:
            digits = secrets.token_hex(ID_BYTES * MADE_AT_ONCE)
            self._made = [digits[at : at + 2 * ID_BYTES] for at in range(0, len(digits), 2 * ID_BYTES)]
        return self._made.pop()
