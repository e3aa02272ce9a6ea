"""What a front end does over time: clients that leave, counters, connections, a full engine, SIGTERM."""

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.engine.checks import CHAT, JSON, QUESTION

# The gauges and counters that the gateway and the stack's dashboards read.
METRICS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
    "vllm:e2e_request_latency_seconds_bucket",
    "vllm:request_queue_time_seconds_bucket",
    "vllm:request_prefill_time_seconds_bucket",
    "vllm:request_decode_time_seconds_bucket",
    "process_start_time_seconds",
)
_PATIENCE_SECONDS = 8.0
_LONG = 1000
_KEPT_AFTER: dict[str, dict[str, Any]] = {"answer": {}, "error": {"temperature": -1}, "stream": {"stream": True}}


@dataclass(slots=True)
class Server:
    """A front end under test."""

    port: int
    model: str
    pid: int | None = None

    def metrics(self) -> str:
        """The metrics page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    def total(self, name: str) -> float:
        """A metric, summed over its labels."""
        lines = (line for line in self.metrics().splitlines() if line.startswith((name + "{", name + " ")))
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def generate(self, **fields: Any) -> bytes:
        """The bytes of a request that generates for long."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": _LONG,
            "ignore_eos": True,
            **fields,
        }
        data = json.dumps(body).encode()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data


def behaviours(last: bool) -> dict[str, Callable[[Server], dict[str, Any]]]:
    """Return what to watch, by name; `last` is what engines do not survive."""
    if last:
        return {"SIGTERM under load": sigterm}
    return {
        "metrics that the stack reads": metric_names,
        "counters are exact": counters,
        "gauge while working": gauge,
        "client leaves a stream": lambda server: leave(server, streamed=True),
        "client leaves before the whole answer": lambda server: leave(server, streamed=False),
        "client leaves while waiting for its prompt": leave_early,
        "connection is kept": keep_alive,
        "pipelined requests": pipelined,
        "half-closed client": half_closed,
        "slow reader": slow_reader,
        "burst of 200": burst,
        "headers of a stream": headers,
        "first event": first_event,
        "same seed, other seed": seeds,
    }


def metric_names(server: Server) -> dict[str, Any]:
    """Which metrics are there."""
    page = server.metrics()
    return {name: name in page for name in METRICS} | {"labels": "engine=" in page and "model_name=" in page}


def counters(server: Server) -> dict[str, Any]:
    """How the counters move by an answer of 20 tokens."""
    names = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total")
    before = {name: server.total(name) for name in names}
    usage = _whole(server, max_tokens=20)["usage"]
    time.sleep(0.5)
    moved = {name: server.total(name) - before[name] for name in names}
    return {
        "generation": moved[names[0]],
        "prompt is usage's": moved[names[1]] == usage["prompt_tokens"],
        "requests": moved[names[2]],
        "start is this machine's time": abs(time.time() - server.total("process_start_time_seconds")) < 3600,  # noqa: PLR2004
    }


def gauge(server: Server) -> dict[str, Any]:
    """Whether the gauge of running requests and the token counter move while an answer is on its way."""
    with _asked(server, stream=True) as connection:
        _first_event(connection)
        running = _becomes(server, lambda value: value >= 1)
        before = server.total("vllm:generation_tokens_total")
        time.sleep(0.3)
        moving = server.total("vllm:generation_tokens_total") > before
    return {"running is seen": running is not None, "tokens move": moving}


def leave(server: Server, *, streamed: bool) -> dict[str, Any]:
    """How soon the engine is free once the client has gone."""
    with _asked(server, stream=streamed) as connection:
        if streamed:
            _first_event(connection)
        else:
            _becomes(server, lambda value: value >= 1)
    seconds = _becomes(server, lambda value: value == 0)
    return {"engine is free": seconds is not None, "seconds": _tenths(seconds)}


def leave_early(server: Server) -> dict[str, Any]:
    """The same for a client that leaves as soon as it has asked, with a long prompt."""
    with _asked(server, stream=True, messages=[{"role": "user", "content": "word " * 500}]):
        pass
    time.sleep(0.2)
    seconds = _becomes(server, lambda value: value == 0)
    return {"engine is free": seconds is not None, "seconds": _tenths(seconds)}


def keep_alive(server: Server) -> dict[str, Any]:
    """Whether a connection serves a second request, after an answer, an error and a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    kept = {}
    with contextlib.closing(connection):
        for name, fields in _KEPT_AFTER.items():
            connection.request("POST", CHAT, _body(server, max_tokens=4, **fields), JSON)
            answer = connection.getresponse()
            answer.read()
            kept[f"after {name}"] = not answer.will_close and connection.sock is not None
    return kept


def pipelined(server: Server) -> dict[str, Any]:
    """Whether two requests sent at once are both answered, in their order."""
    with _asked(server, max_tokens=2) as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        data = _all(connection)
    return {"answers": data.count(b"HTTP/1.1 200"), "order": data.find(b"choices") < data.find(b'"version"')}


def half_closed(server: Server) -> dict[str, Any]:
    """What a client gets that has closed its sending side."""
    with _asked(server, max_tokens=4, stream=True) as connection:
        connection.shutdown(socket.SHUT_WR)
        data = _all(connection)
    return {"answered": b"[DONE]" in data}


def slow_reader(server: Server) -> dict[str, Any]:
    """Whether another is served while a client does not read."""
    with _asked(server, stream=True, logprobs=True, top_logprobs=5):
        began = time.monotonic()
        _whole(server, max_tokens=4)
        return {"another is served": time.monotonic() - began < _PATIENCE_SECONDS}


def burst(server: Server) -> dict[str, Any]:
    """Statuses of 200 requests at once."""
    statuses: list[int | str] = []

    def one() -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=40)
            with contextlib.closing(connection):
                connection.request("POST", CHAT, _body(server, max_tokens=8), JSON)
                answer = connection.getresponse()
                text = answer.read().decode()
                statuses.append(answer.status if answer.status < 400 else f"{answer.status} {text[:200]}")  # noqa: PLR2004
        except OSError as error:
            statuses.append(type(error).__name__)

    threads = [threading.Thread(target=one) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"statuses": {str(status): statuses.count(status) for status in sorted(set(statuses), key=str)}}


def headers(server: Server) -> dict[str, Any]:
    """The headers of a stream, without those that differ by time."""
    with _asked(server, max_tokens=2, stream=True) as connection:
        data = _all(connection)
    lines = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    return dict(sorted(line.lower().split(": ", 1) for line in lines if not line.lower().startswith("date")))


def first_event(server: Server) -> dict[str, Any]:
    """Whether a stream's first event tells that there is a token, or only that the request was taken."""
    with _asked(
        server, max_tokens=4, stream=True, messages=[{"role": "user", "content": "word " * 1500}]
    ) as connection:
        began = time.monotonic()
        data, event = b"", None
        while b'"content":"' not in data.replace(b'"content":""', b""):
            data += connection.recv(65536)
            event = time.monotonic() - began if event is None and b"data: " in data else event
        token = time.monotonic() - began
    return {"comes with the first token": (event or 0) > token / 2, "seconds": [round(event or 0, 4), round(token, 4)]}


def seeds(server: Server) -> dict[str, Any]:
    """Whether a seed makes an answer come again."""
    first, again, other = (
        _whole(server, max_tokens=24, temperature=1, seed=seed)["choices"][0]["message"]["content"]
        for seed in (5, 5, 6)
    )
    return {"same": first == again, "other": first != other}


def sigterm(server: Server) -> dict[str, Any]:
    """What becomes of eight streams, the port and the processes."""
    if server.pid is None:
        return {"skipped": "no process is known"}
    ends: list[str] = []

    def one() -> None:
        try:
            with _asked(server, stream=True, max_tokens=2000) as connection:
                data = _all(connection)
                ended = b"0\r\n\r\n" in data[-8:]
                error = data[data.rfind(b'data: {"error"') :][:300] if b'data: {"error"' in data else b""
                kind = "[DONE]" if b"[DONE]" in data else "ended whole, no [DONE]" if ended else "cut"
                ends.append(f"{kind} {error.decode(errors='replace')}".strip())
        except OSError as problem:
            ends.append(type(problem).__name__)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    _becomes(server, lambda value: value >= 8)  # noqa: PLR2004
    began = time.monotonic()
    os.kill(server.pid, signal.SIGTERM)
    refused = gone = None
    while time.monotonic() - began < 2 * _PATIENCE_SECONDS and gone is None:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if refused is None and probe.connect_ex(("127.0.0.1", server.port)):
                refused = time.monotonic() - began
        if not _session(server.pid):
            gone = time.monotonic() - began
        time.sleep(0.05)
    for thread in threads:
        thread.join(timeout=1)
    return {
        "streams": {end: ends.count(end) for end in sorted(set(ends))},
        "streams still open": sum(thread.is_alive() for thread in threads),
        "port closed after": _tenths(refused),
        "processes gone after": _tenths(gone),
    }


# --- Small things ---


@contextlib.contextmanager
def _asked(server: Server, **fields: Any) -> Any:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(server.generate(**fields))
        yield connection


def _first_event(connection: socket.socket) -> None:
    data = b""
    while data.count(b"data: ") < 2:  # noqa: PLR2004 - the first may only name the role
        new = connection.recv(65536)
        if not new:
            raise RuntimeError(f"no event came: {data[:300]!r}")
        data += new


def _all(connection: socket.socket) -> bytes:
    """Everything up to the end of the answer, or of the connection."""
    data = b""
    closes = None
    while new := connection.recv(65536):
        data += new
        closes = b"connection: close" in data.lower() if closes is None else closes
        if data.endswith(b"0\r\n\r\n") and data.count(b"HTTP/1.1 ") == 1 and b"[DONE]" in data:
            break
        if data.count(b"HTTP/1.1 ") == 2 and b'"version"' in data:  # noqa: PLR2004
            break
    return data


def _body(server: Server, **fields: Any) -> bytes:
    return server.generate(**fields).partition(b"\r\n\r\n")[2]


def _whole(server: Server, **fields: Any) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("POST", CHAT, _body(server, **fields), JSON)
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer


def _becomes(server: Server, holds: Callable[[float], bool]) -> float | None:
    """Wait until the gauge of running requests is so, and return how long that took."""
    began = time.monotonic()
    while time.monotonic() - began < _PATIENCE_SECONDS:
        if holds(server.total("vllm:num_requests_running")):
            return time.monotonic() - began
        time.sleep(0.02)
    return None


def _session(leader: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            rest = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(rest[3]) == leader and rest[0] != "Z":
                found.append(int(entry.name))
    return found


def _tenths(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
