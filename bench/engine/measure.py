"""One load on running engines: the client processes, the window, and the figures of both sides."""

import array
import base64
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from bench.engine.card import Card
from bench.engine.client import TAIL_SECONDS, Order
from bench.engine.engines import Clocks, Engine
from bench.engine.result import percentiles_ms, rounded
from bench.engine.scenarios import Load

OUTPUT_TOKENS = 128
# A client process is there and has read its order after this time.
_LEAD_SECONDS = 0.7
_GRACE_SECONDS = 5.0
_LOAD_CORES = 4
PROMPT_BYTES = 530


def measure(load: Load, engines: Sequence[Engine], idle: Sequence[Engine], model: str, card: Card) -> dict[str, Any]:
    """Carry out a load and return its figures; `idle` are engines that have nothing to do meanwhile."""
    cores = sorted(os.sched_getaffinity(0))
    engine_cores, load_cores = _shares(cores, len(engines)) if load.pinned else ([cores] * len(engines), [])
    for engine, share in zip(engines, engine_cores, strict=True):
        if load.pinned:
            engine.pin(share)
    begin = time.monotonic() + _LEAD_SECONDS
    opens, closes = begin + load.settle_seconds, begin + load.settle_seconds + load.window_seconds
    clients = [_client(order) for order in _orders(load, engines, model, (begin, opens, closes), load_cores)]
    try:
        _sleep_until(opens)
        before, clocks_before = _counters(engines), [engine.clocks() for engine in engines]
        idle_before = [engine.clocks() for engine in idle]
        opened = time.monotonic()
        _sleep_until(closes)
        after, clocks_after = _counters(engines), [engine.clocks() for engine in engines]
        idle_after = [engine.clocks() for engine in idle]
        seconds = time.monotonic() - opened
        used = card.used_bytes()
        seen = [json.loads(client.communicate(timeout=TAIL_SECONDS + _GRACE_SECONDS)[0]) for client in clients]
    finally:
        for client in clients:
            client.kill()
            client.wait()
        if load.pinned:
            for engine in engines:
                engine.pin(cores)
    return {
        "engine": _rates(before, after),
        "client": _client_figures(seen, load.window_seconds, closes - begin),
        "cpu": _cpu(clocks_before, clocks_after, seconds),
        "idle_engines_cpu": _cpu(idle_before, idle_after, seconds),
        "gpu": card.between(opens, closes),
        "gpu_used_gb": rounded(used / 1e9) if used else None,
        "window_seconds": load.window_seconds,
        "settle_seconds": load.settle_seconds,
        "client_processes": load.processes,
        "cores": {"engines": engine_cores, "load": load_cores} if load.pinned else None,
    }


def _shares(cores: list[int], engines: int) -> tuple[list[list[int]], list[int]]:
    """Give the load a quarter of the cores, four at most, and the engines equal parts of the others."""
    for_load = max(1, min(_LOAD_CORES, len(cores) // 4))
    others, load = cores[:-for_load], cores[-for_load:]
    size = max(1, len(others) // engines)
    return [others[index * size % len(others) :][:size] for index in range(engines)], load


def _orders(
    load: Load, engines: Sequence[Engine], model: str, times: tuple[float, float, float], cores: list[int]
) -> list[Order]:
    ports = [engines[index % len(engines)].port for index in range(load.streams)]
    # A process gets a run of neighbours, so that each has streams of every engine.
    size = -(-len(ports) // load.processes)
    begin, opens, closes = (int(moment * 1e9) for moment in times)
    return [
        Order(
            ports=ports[first : first + size],
            model=model,
            output_tokens=OUTPUT_TOKENS,
            prompt_bytes=PROMPT_BYTES,
            shared_bytes=load.shared_bytes,
            temperature=load.temperature,
            begin_ns=begin,
            spread_ns=int(load.spread_seconds * 1e9),
            open_ns=opens,
            close_ns=closes,
            cores=cores,
        )
        for first in range(0, len(ports), size)
    ]


def _client(order: Order) -> subprocess.Popen[bytes]:
    client = subprocess.Popen(
        [sys.executable, "-m", "bench.engine.client"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    if client.stdin is None:
        raise RuntimeError("the client has no input")
    client.stdin.write(json.dumps(dataclasses.asdict(order)).encode())
    client.stdin.close()
    # Else communicate would flush it again.
    client.stdin = None
    return client


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _counters(engines: Sequence[Engine]) -> list[tuple[float, dict[str, float]]]:
    """Ask all engines at the same time."""
    found: list[tuple[float, dict[str, float]]] = [(0.0, {})] * len(engines)

    def look(index: int) -> None:
        found[index] = engines[index].counters()

    threads = [threading.Thread(target=look, args=(index,)) for index in range(len(engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _rates(before: list[tuple[float, dict[str, float]]], after: list[tuple[float, dict[str, float]]]) -> dict[str, Any]:
    """Return what the engines' own counters say, summed over the engines."""
    names = {
        "tokens_per_second": "vllm:generation_tokens_total",
        "prompt_tokens_per_second": "vllm:prompt_tokens_total",
        "cached_prompt_tokens_per_second": "vllm:prefix_cache_hits_total",
        "preemptions_per_second": "vllm:num_preemptions_total",
    }
    rates: dict[str, Any] = {}
    for name, metric in names.items():
        parts = [
            (new[metric] - old[metric]) / (at - then)
            for (then, old), (at, new) in zip(before, after, strict=True)
            if metric in old and metric in new and at > then
        ]
        rates[name] = rounded(sum(parts)) if len(parts) == len(before) else None
    for name, metric in (("running", "vllm:num_requests_running"), ("waiting", "vllm:num_requests_waiting")):
        rates[name] = sum(sums.get(metric, 0.0) for _, sums in after)
    rates["kv_usage"] = [rounded(sums.get("vllm:kv_cache_usage_perc", 0.0)) for _, sums in after]
    return rates


def _client_figures(seen: list[dict[str, Any]], window: float, lived: float) -> dict[str, Any]:
    samples = {name: array.array("I") for name in ("ttft_us", "gap_us", "answer_us")}
    for one in seen:
        for name, values in samples.items():
            values.frombytes(base64.b64decode(one[name]))
    total = {name: sum(one[name] for one in seen) for name in ("tokens", "events", "reads", "answers", "short")}
    failures: dict[str, int] = {}
    for one in seen:
        for reason, count in one["failures"].items():
            failures[reason] = failures.get(reason, 0) + count
    return {
        "tokens_per_second": rounded(total["tokens"] / window),
        "ttft_ms": percentiles_ms(samples["ttft_us"]),
        "gap_ms": percentiles_ms(samples["gap_us"]),
        "answer_ms": percentiles_ms(samples["answer_us"]),
        "tokens_per_read": rounded(total["tokens"] / total["reads"]) if total["reads"] else None,
        "tokens_per_event": rounded(total["tokens"] / total["events"]) if total["events"] else None,
        "prompt_tokens": rounded(sum(one["prompt_tokens"] for one in seen) / total["answers"])
        if total["answers"]
        else None,
        "answers": total["answers"],
        "short_answers": total["short"],
        "failures": failures,
        # Of one core each, over the client's whole life: near 1 the load is the limit.
        "busiest_process": rounded(max(one["cpu_seconds"] for one in seen) / lived),
        "cores": rounded(sum(one["cpu_seconds"] for one in seen) / lived),
    }


def _cpu(before: list[Clocks], after: list[Clocks], seconds: float) -> dict[str, Any]:
    """Return CPU use in cores: of the engines, of their front ends, of the busiest thread of each kind."""
    busiest = {"core": 0.0, "front": 0.0}
    for old, new in zip(before, after, strict=True):
        for (kind, thread), spent in new.threads.items():
            share = (spent - old.threads.get((kind, thread), 0)) / 1e9 / seconds
            busiest[kind] = max(busiest[kind], share)
    pairs = list(zip(before, after, strict=True))
    return {
        "engine_cores": rounded(sum(new.core - old.core for old, new in pairs) / 1e9 / seconds),
        "front_end_cores": rounded(sum(new.front - old.front for old, new in pairs) / 1e9 / seconds),
        "busiest_engine_thread": rounded(busiest["core"]),
        "busiest_front_end_thread": rounded(busiest["front"]),
        # Time in which threads could have run and others had the cores, in cores.
        "waiting_for_cores": rounded(sum(new.waited - old.waited for old, new in pairs) / 1e9 / seconds),
    }
