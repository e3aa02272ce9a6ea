"""The few figures of vLLM's own metrics that tell working from standing still."""

import math
import re
from dataclasses import dataclass

_SAMPLE = re.compile(
    rb"^(?:vllm:(num_requests_running|num_requests_waiting|prompt_tokens_total|generation_tokens_total"
    rb"|kv_cache_usage_perc)"
    rb"|(process_start_time_seconds))(?:\{.*\})? ([0-9.eE+-]+)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Counters:
    """One look at an engine's metrics, summed over its API servers and engine processes; `started_at` in Unix time.

    `cache` is the share of the KV cache in use, the fullest engine process's; None where none publishes it.
    """

    running: float
    waiting: float
    tokens: float
    started_at: float
    cache: float | None = None


def read_counters(exposition: bytes) -> Counters | None:
    """Return the figures in a metrics page, or None if it is not vLLM's."""
    sums = {
        b"num_requests_running": 0.0,
        b"num_requests_waiting": 0.0,
        b"prompt_tokens_total": 0.0,
        b"generation_tokens_total": 0.0,
    }
    found, started_at = False, 0.0
    cache: float | None = None
    for sample in _SAMPLE.finditer(exposition):
        try:
            value = float(sample[3])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        if sample[1] is None:
            # Of several processes the youngest: its start is what made the engine new.
            started_at = max(started_at, value)
        elif sample[1] == b"kv_cache_usage_perc":
            cache = max(cache or 0.0, value)
        else:
            sums[sample[1]] += value
        found = found or sample[1] in sums
    if not found:
        return None
    return Counters(
        running=sums[b"num_requests_running"],
        waiting=sums[b"num_requests_waiting"],
        tokens=sums[b"prompt_tokens_total"] + sums[b"generation_tokens_total"],
        started_at=started_at,
        cache=cache,
    )
