"""What the gateway reads besides requests and streams: any text is understood or refused, and quickly."""

import contextlib
import ipaddress
import json
import math
import re
import time
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
import pytest
from gateway.readiness.counters import read_counters
from gateway.readiness.trial import Trial, TrialFault, _choice_in, check_text
from gateway.settings import SettingsError, load
from gateway.upstreams import Answer, BadStatus, Engine, Upstreams, read_status
from gateway.upstreams.names import host_and_port
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.effort import effort

ENGINE = Engine("engine", "http://127.0.0.1:8000")

# --- Addresses of engines ------------------------------------------------------
schemes = st.sampled_from(["http://", "https://", "dns://", "launcher://"])
odd_hosts = ["A", "999.1.1.1", "[::1]", "[:::]", "[1.2.3.4]", "[]", "a..b", ".", "a.", "-", "a" * 64, "é"]
hosts = st.sampled_from(["vllm", "a", "127.0.0.1", *odd_hosts]) | st.text("ab.-_:[]1", min_size=1, max_size=6)
ports = st.sampled_from(["", "", ":8000", ":65535", ":0", ":65536", ":", ":08"])
paths = st.sampled_from(["", "", "", "/", "//", "/v1", "?x", "#", " "])
addresses = st.builds("{}{}{}{}".format, schemes, hosts, ports, paths)
HOST_NAME = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")


@effort(120, 5000)
@example("http://a..b")
@example("http://[1.2.3.4]")
@example("dns://[::1]:8000")
@example("http://a,http://a/")
@example("http://a,https://a")
@example("launcher://[::1]:8090,launcher://[::1")
@given(st.text(max_size=30) | addresses | st.lists(addresses, min_size=2, max_size=3).map(",".join))
def test_any_address_is_one_that_can_be_used_or_is_refused_on_one_line(text: str) -> None:
    upstreams = upstreams_of(text)
    if isinstance(upstreams, str):
        assert upstreams.startswith("GATEWAY_UPSTREAMS=")
        assert upstreams.isprintable()
        return
    places = [host_and_port(name, 8000) for name in (*upstreams._names, *upstreams.launchers.names)]
    for engine in upstreams.engines:
        url = urlsplit(f"{engine.base_url}/health")
        assert url.path == "/health"
        assert url.username is url.password is None
        places.append((url.hostname or "", url.port or {"http": 80, "https": 443}[url.scheme]))
    assert all(is_host(host) and 1 <= port <= 65_535 for host, port in places), places
    labels = [engine.label for engine in upstreams.engines]
    assert len(labels) == len(set(labels)), "two engines of one name would share their metrics"


def upstreams_of(text: str) -> Upstreams | str:
    """Return the engines that a value of GATEWAY_UPSTREAMS means, or the words that refuse it."""
    try:
        return Upstreams(load({"GATEWAY_UPSTREAMS": text}).upstreams)
    except SettingsError as error:
        return str(error)


def is_host(host: str) -> bool:
    if ":" not in host:
        return bool(HOST_NAME.fullmatch(host))
    return bool(ipaddress.ip_address(host))


# --- Trial generations ---------------------------------------------------------
keys = st.sampled_from(["delta", "content", "x"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=5,
)
choices = st.fixed_dictionaries(
    {}, optional={"delta": json_values | st.fixed_dictionaries({"content": json_values}), "finish_reason": json_values}
)
chunks = st.fixed_dictionaries(
    {}, optional={"choices": json_values | st.lists(choices, max_size=2), "error": json_values}
)


@effort(120, 5000)
@given(st.binary(max_size=40) | (chunks | json_values).map(orjson.dumps))
def test_any_event_of_a_trial_is_text_or_a_fault(data: bytes) -> None:
    try:
        text, reason = _choice_in(data)
    except TrialFault:
        return
    assert isinstance(text, str)
    assert reason is None or isinstance(reason, str)


@effort(60, 5000)
@given(st.text(max_size=200), st.none() | st.sampled_from(["stop", "length", ""]))
def test_any_text_of_a_trial_is_judged(text: str, reason: str | None) -> None:
    with contextlib.suppress(TrialFault):
        check_text(Trial(text, reason, 0.1))


@pytest.mark.parametrize("text", ["a" * 8_000 + "b", "ab" * 4_000 + "c", "<|" * 4_000, " " * 8_000 + "x"])
def test_a_long_text_is_judged_in_no_time(text: str) -> None:
    started_at = time.process_time()
    with contextlib.suppress(TrialFault):
        check_text(Trial(text, "stop", 0.1))
    # It runs in the loop that serves everybody. What takes the square of the length takes seconds here.
    assert time.process_time() - started_at < 0.3


# --- The engine's metrics ------------------------------------------------------
names = st.sampled_from(["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:prompt_tokens_total",
                         "vllm:generation_tokens_total", "process_start_time_seconds", "other"])  # fmt: skip
figures = st.floats(0, 1e15).map(repr) | st.sampled_from(["NaN", "+Inf", "-", "1e", "1e999", "--1", "e", "-1e999", ""])
label_values = st.text(max_size=8).map(lambda text: re.sub(r'(["\\])', r"\\\1", text).replace("\n", "\\n"))
samples = st.builds('{}{{model_name="{}"}} {}'.format, names, label_values, figures)


@effort(80, 5000)
@given(
    st.binary(max_size=80)
    | st.lists(samples | st.text(max_size=10), max_size=8).map(lambda some: "\n".join(some).encode())
)
def test_any_page_of_metrics_is_figures_or_nothing(page: bytes) -> None:
    counters = read_counters(page)
    for figure in (counters.running, counters.waiting, counters.tokens, counters.started_at) if counters else ():
        assert math.isfinite(figure), "no figure that can be compared with the next look's"


@effort(60, 5000)
@example("a}b", 1)
@given(label_values, st.integers(0, 10**9))
def test_any_name_of_a_model_leaves_the_figures_readable(name: str, figure: int) -> None:
    counters = read_counters(f'vllm:num_requests_running{{engine="0",model_name="{name}"}} {figure}.0\n'.encode())
    assert counters is not None
    assert counters.running == figure


# --- A launcher's status -------------------------------------------------------
odd_values = json_values | st.floats() | st.integers() | st.sampled_from(["serving", "stopping", "\ud800", "x" * 999])
engine_statuses = st.fixed_dictionaries(
    {"port": st.integers(0, 65_536) | odd_values, "stage": st.just("loading") | odd_values, "since": odd_values},
    optional={"started_at": odd_values, "progress": odd_values, "detail": odd_values},
)
statuses = st.fixed_dictionaries(
    {
        "version": st.just(1) | odd_values,
        "stage": st.just("loading") | odd_values,
        "since": st.just(1.5) | odd_values,
        "engines": st.lists(engine_statuses, max_size=3) | odd_values,
    },
    optional={"progress": odd_values, "detail": odd_values, "x": odd_values},
)


@effort(120, 5000)
@example(b"[" * 100_000)
@given(st.binary(max_size=40) | (statuses | odd_values).map(lambda value: json.dumps(value).encode()))
def test_any_status_of_a_launcher_is_one_or_a_fault(body: bytes) -> None:
    try:
        told = read_status(200, body)
    except BadStatus:
        return
    for stage in (told, *told.engines):
        assert stage.words.isprintable()
        assert math.isfinite(stage.since)
        assert stage.progress is None or 0 <= stage.progress <= 1
    assert all(1 <= engine.port <= 65_535 for engine in told.engines)


# --- Retry-After ---------------------------------------------------------------
@effort(60, 5000)
@given(
    st.text(max_size=12)
    | st.integers().map(str)
    | st.sampled_from(["٣", "²", "1.5", "+5", " 5", "Wed, 21 Oct 2015 07:28:00 GMT"])
)
def test_any_retry_after_is_seconds_or_nothing(value: str) -> None:
    seconds = Answer(cast("Any", SimpleNamespace(headers={"Retry-After": value}, connection=None)), ENGINE).retry_after
    assert seconds is None or (0 <= seconds <= 9999 and int(value) == seconds)
