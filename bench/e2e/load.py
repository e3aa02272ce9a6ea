"""One window of load at one address or several, by the client processes of bench/engine."""

import argparse
import array
import base64
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

from bench.engine.client import TAIL_SECONDS, Order
from bench.engine.scenarios import Load

PROMPT_BYTES = 200
LEAD_SECONDS = 0.7
_NS = 10**9


class Meter(Protocol):
    """Looks at what the processes behind have cost, as a window opens and as it closes."""

    def open(self) -> None:
        """Note what they have cost so far."""

    def close(self) -> dict[str, Any]:
        """Return what they have cost since."""


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add what a load is like."""
    parser.add_argument("--model", default="ernie-demo")
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--variation", type=float, default=0.0, help="share by which answers are shorter or longer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a window is")
    parser.add_argument("--settle", type=float, default=1.0, help="seconds from the last stream's start to the window")
    parser.add_argument("--clients", type=int, default=1, help="addresses that streams come from")


def measure(
    ports: Sequence[int], streams: int, chosen: argparse.Namespace, meter: Meter | None = None
) -> dict[str, Any]:
    """Return what came in one window: tokens a second, times to the first token in ms, answers, failures."""
    processes = Load("", (), streams).processes
    begins_at = time.monotonic() + LEAD_SECONDS
    opens_at = begins_at + chosen.settle + Load("", (), streams).spread_seconds
    turns = itertools.cycle(ports)
    each = [[next(turns) for _ in range(streams)][number::processes] for number in range(processes)]
    order = Order(
        ports=[],
        model=chosen.model,
        output_tokens=chosen.output_tokens,
        prompt_bytes=PROMPT_BYTES,
        shared_bytes=0,
        temperature=0.7,
        begin_ns=int(begins_at * _NS),
        spread_ns=int(Load("", (), streams).spread_seconds * _NS),
        open_ns=int(opens_at * _NS),
        close_ns=int((opens_at + chosen.seconds) * _NS),
        cores=[],
        variation=chosen.variation,
        addresses=[f"127.0.0.{2 + number}" for number in range(chosen.clients)] if chosen.clients > 1 else [],
    )
    clients = [_client(dataclasses.replace(order, ports=some)) for some in each if some]
    cost = _watch(meter, opens_at, opens_at + chosen.seconds) if meter else {}
    limit = opens_at + chosen.seconds - time.monotonic() + 2 * TAIL_SECONDS
    seen = [json.loads(client.communicate(timeout=limit)[0]) for client in clients]
    first = sorted(us / 1000 for one in seen for us in _unpack(one["ttft_us"]))
    return {
        "tokens_per_second": sum(one["tokens"] for one in seen) / chosen.seconds,
        "first_token_ms": {"p50": statistics.median(first), "p99": first[int(len(first) * 0.99)]} if first else None,
        "answers": sum(one["answers"] for one in seen),
        "failures": sum(sum(one["failures"].values()) for one in seen),
        "events_per_read": sum(one["events"] for one in seen) / max(1, sum(one["reads"] for one in seen)),
        "load_cores": sum(one["cpu_seconds"] for one in seen) / (opens_at + chosen.seconds - begins_at),
        **cost,
    }


def _watch(meter: Meter, opens_at: float, closes_at: float) -> dict[str, Any]:
    time.sleep(max(0.0, opens_at - time.monotonic()))
    meter.open()
    time.sleep(max(0.0, closes_at - time.monotonic()))
    return meter.close()


def _client(order: Order) -> "subprocess.Popen[str]":
    client = subprocess.Popen(
        [sys.executable, "-m", "bench.engine.client"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    if client.stdin is None:
        raise RuntimeError("the client has no input")
    client.stdin.write(json.dumps(dataclasses.asdict(order)))
    client.stdin.flush()
    client.stdin.close()
    client.stdin = None
    return client


def _unpack(packed: str) -> "array.array[int]":
    return array.array("I", base64.b64decode(packed))
