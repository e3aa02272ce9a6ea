"""The proof that a start is through, where the gateway wants a key."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ops.errors import StackError
from ops.proof import ask

REPLY = {"choices": [{"message": {"content": "你好"}}]}
WITHOUT_KEY, WRONG_KEY = "", "sk-wrong"


class Edge(BaseHTTPRequestHandler):
    """Answers as nginx does before a gateway whose keys are on."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_GET(self) -> None:
        """Show the page, and the models to who has the key."""
        if self.path == "/":
            self._send(200, b"<html>", "text/html")
        elif self.headers.get("authorization") == "Bearer sk-right":
            self._send(200, json.dumps({"data": [{"id": "ernie"}]}).encode())
        else:
            self._send(401, b"{}")

    def do_POST(self) -> None:
        """Answer a question."""
        self.rfile.read(int(self.headers["content-length"]))
        self._send(200, json.dumps(REPLY).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Edge) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_key_of_the_operators_asks_the_question(url: str) -> None:
    assert ask(url, "sk-right").text == "你好"


def test_without_a_key_the_gateways_own_word_counts(url: str) -> None:
    assert "API keys are on" in ask(url, WITHOUT_KEY).text


def test_a_wrong_key_is_told(url: str) -> None:
    with pytest.raises(StackError, match="401"):
        ask(url, WRONG_KEY)
