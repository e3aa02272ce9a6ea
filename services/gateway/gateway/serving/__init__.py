"""HTTP with clients: uvicorn's server, with connections and answers of the gateway's own."""

from gateway.serving.server import LAST_BYTES_SECONDS, Server, listen, make_server, raise_file_limit

__all__ = ["LAST_BYTES_SECONDS", "Server", "listen", "make_server", "raise_file_limit"]
