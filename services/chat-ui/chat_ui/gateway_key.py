"""The key by which the gateway knows this page's server, in a file that the gateway makes."""

import logging
import re
import time
from pathlib import Path

logger = logging.getLogger("chat_ui")

LOOK_SECONDS = 0.1
MAX_BYTES = 1024
# The gateway's are longer; what is shorter is no key of its making.
USABLE = re.compile(rb"[\x21-\x7e]{32,}")


class GatewayKey:
    """The key in a file; an empty path means that there is none. Never logged."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._missed = False

    def wait(self, seconds: float) -> None:
        """Give a gateway that starts at the same time so long to make its key."""
        ends_at = time.monotonic() + seconds
        while self._path and not self._look() and time.monotonic() < ends_at:
            time.sleep(LOOK_SECONDS)
        self.headers()

    def headers(self) -> dict[str, str]:
        """Return what proves who is calling, nothing without a key; the log says once when it is missed, or back.

        Read for each call: a gateway that lost its key makes another, and a wrong one would be no error but a page
        whose people share one client's limits.
        """
        if self._path is None:
            return {}
        key = self._look()
        if (not key) != self._missed:
            self._missed = not key
            if self._missed:
                logger.warning(
                    "no key in %s: the gateway counts all people at this page as one client until it is there; "
                    "CHAT_UI_GATEWAY_KEY_FILE must be the gateway's GATEWAY_CHAT_UI_KEY_FILE",
                    self._path,
                )
            else:
                logger.info("the gateway's key is there: everybody at this page has limits of their own")
        return {"authorization": f"Bearer {key}"} if key else {}

    def _look(self) -> str:
        if self._path is None:
            return ""
        try:
            with self._path.open("rb") as file:
                key = file.read(MAX_BYTES).strip()
        except OSError:
            return ""
        return key.decode("ascii") if USABLE.fullmatch(key) else ""
