"""Reading a request's body: of a bounded size, in a bounded time, as it is."""

import time

from starlette.types import Receive, Scope

from gateway.errors import ClientDisconnected, RequestTimeout, RequestTooLarge, UnsupportedEncoding
from gateway.relay import Patience

# nginx has the whole body before it connects; only a client without it before can be slower.
BODY_SECONDS = 30.0
_LENGTH_DIGITS = 18


class BodyReader:
    """Reads bodies of up to `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def read(self, scope: Scope, receive: Receive, patience: Patience) -> bytes:
        """Return the body.

        Raises RequestTooLarge (at once where the headers say so), UnsupportedEncoding, RequestTimeout, and
        ClientDisconnected without a client.
        """
        self._check_headers(scope["headers"])
        chunks: list[bytes] = []
        size = 0
        ends_at = time.monotonic() + BODY_SECONDS
        while True:
            try:
                message = await patience.wait(receive(), ends_at - time.monotonic())
            except TimeoutError:
                raise RequestTimeout(f"The body did not arrive within {BODY_SECONDS:.0f} s.") from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._max_bytes:
                raise self._too_large()
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _check_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        for name, value in headers:
            if name == b"content-length" and _announces_more(value, self._max_bytes):
                raise self._too_large()
            if name == b"content-encoding" and value.lower() != b"identity":
                raise UnsupportedEncoding("Send the body uncompressed.", param="content-encoding")

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"The body is larger than {self._max_bytes} bytes. Send fewer or shorter messages.")


def _announces_more(content_length: bytes, limit_bytes: int) -> bool:
    digits = content_length.strip().lstrip(b"0")
    # Python refuses to read a number of thousands of digits.
    return digits.isdigit() and (len(digits) > _LENGTH_DIGITS or int(digits) > limit_bytes)
