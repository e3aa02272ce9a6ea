"""Whether a server answers its health check."""

import http.client

_TIMEOUT_SECONDS = 2.0


def healthy(host: str, port: int, timeout_seconds: float = _TIMEOUT_SECONDS) -> bool:
    """Whether the server answers GET /health with 200; never by way of a proxy."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
