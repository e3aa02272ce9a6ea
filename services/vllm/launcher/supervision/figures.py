"""The figures of vLLM's own metrics that tell work from standing still, read from a running engine."""

import http.client
import re
from collections.abc import Mapping

_FIGURES = re.compile(
    rb"^vllm:(prompt_tokens_total|generation_tokens_total|num_requests_running|num_requests_waiting"
    rb"|kv_cache_usage_perc|gpu_cache_usage_perc|request_success_total)(?:\{[^}]*\})? ([0-9.eE+-]+)$",
    re.MULTILINE,
)
_BUSY = (b"num_requests_running", b"num_requests_waiting")


def read_figures(address: tuple[str, int], seconds: float) -> dict[bytes, float] | None:
    """Each figure summed over its labels, empty where the engine tells none; None if it does not answer in time."""
    status, page = exchange(address, "GET", "/metrics", None, max(1.0, seconds))
    if not status or status >= http.client.INTERNAL_SERVER_ERROR:
        return None
    sums: dict[bytes, float] = {}
    for name, number in _FIGURES.findall(page):
        sums[name] = sums.get(name, 0.0) + float(number)
    return sums


def is_idle(figures: Mapping[bytes, float] | None) -> bool:
    """Whether the engine says that it has nothing to do."""
    return figures is not None and not any(figures.get(name) for name in _BUSY)


def exchange(address: tuple[str, int], method: str, path: str, body: str | None, seconds: float) -> tuple[int, bytes]:
    """One request, never by way of a proxy; status 0 if there is no answer."""
    connection = http.client.HTTPConnection(*address, timeout=seconds)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
