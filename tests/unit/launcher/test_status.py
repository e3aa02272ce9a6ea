"""GET /status over real sockets: one address, two methods, and nobody who can hold it up."""

import socket
from collections.abc import Iterator

import httpx
import pytest
from launcher import errors
from launcher.supervision.board import Board
from launcher.supervision.stages import Stage
from launcher.supervision.status import StatusServer, fetch_status

from .test_fleet import free_ports


@pytest.fixture
def board() -> Board:
    return Board("ernie-demo")


@pytest.fixture
def port(board: Board) -> Iterator[int]:
    [port] = free_ports(1)
    with StatusServer(board, "127.0.0.1", port, request_seconds=1):
        yield port


def test_it_tells_the_present_state(board: Board, port: int) -> None:
    address = f"http://127.0.0.1:{port}/status"
    with httpx.Client(trust_env=False) as client:
        before = client.get(address).json()
        board.own.enter(Stage.DOWNLOADING, "310 of 721 MB", 0.43)
        after = client.get(address)
        head = client.head(address)
    since = before.pop("since")
    nothing = {"stage": "checking", "progress": None, "detail": None, "engines": [], "cards": []}
    assert before == {"version": 1, "model": "ernie-demo", **nothing}
    assert after.json()["since"] >= since
    assert after.json()["detail"] == "310 of 721 MB"
    assert after.headers["content-type"] == "application/json"
    assert (head.status_code, head.content) == (200, b"")
    assert fetch_status("127.0.0.1", port) == after.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/metrics", 404), ("POST", "/status", 405), ("DELETE", "/status", 405)],
)
def test_all_else_is_refused(port: int, method: str, path: str, status: int) -> None:
    with httpx.Client(trust_env=False) as client:
        answer = client.request(method, f"http://127.0.0.1:{port}{path}")
    assert answer.status_code == status
    assert answer.content == b""


@pytest.mark.parametrize("junk", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n", b"GET /status\r\n\r\n"])
def test_junk_is_answered_and_hurts_nobody(port: int, junk: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(junk)
        assert connection.recv(100).startswith(b"HTTP/1.1 ")
    assert fetch_status("127.0.0.1", port)


def test_an_endless_head_is_cut_off(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET /status HTTP/1.1\r\n" + b"x" * 20_000)
        assert _is_closed(connection)


def test_the_silent_take_no_place_from_others_for_long(port: int) -> None:
    silent = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(63)]
    try:
        assert fetch_status("127.0.0.1", port), "there is room for one more"
        assert all(_is_closed(connection) for connection in silent), "after a second"
    finally:
        for connection in silent:
            connection.close()


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def test_a_taken_port_is_named(board: Board, port: int) -> None:
    with pytest.raises(errors.PortTaken, match=f"ENGINE_STATUS_PORT={port}"), StatusServer(board, "127.0.0.1", port):
        pytest.fail("it served on a taken port")
