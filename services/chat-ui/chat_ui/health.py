"""The container's health check."""

import http.client
import json
import sys

TIMEOUT_SECONDS = 3


def check_health(host: str, port: int, base_path: str) -> int:
    """Return 0 if the page's own health answer comes, else 1 with a line on stderr.

    The body decides: Chainlit answers every unknown path with 200.
    """
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", f"{base_path}/health")
        healthy = json.loads(connection.getresponse().read()) == {"status": "ok"}
    except (OSError, ValueError, http.client.HTTPException) as error:
        sys.stderr.write(f"chat-ui: no health answer from {address}:{port}: {error!r}\n")
        return 1
    finally:
        connection.close()
    return 0 if healthy else 1
