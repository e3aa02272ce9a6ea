"""`/status`: the page, its figures, and the engines as Prometheus's targets."""

import json
import re

from gateway.history import Totals

from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import STREAMED, RunningGateway, eventually


async def test_the_page_brings_all_that_it_needs_and_may_load_nothing_else(gateway: RunningGateway) -> None:
    page = await gateway.client.get("/status")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    # Relative, so that it works behind a prefix too.
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert sorted(loaded) == ["data:,", "status/figures", "status/page.css", "status/page.js"]
    for path, kind in (("/status/page.css", "text/css"), ("/status/page.js", "text/javascript")):
        answer = await gateway.client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", ""), "no foreign host"


async def test_figures_tell_of_engines_without_naming_an_address(engine: FakeEngine, gateway: RunningGateway) -> None:
    answer = await gateway.client.get("/status/figures")
    assert answer.headers["cache-control"] == "no-store"
    figures = answer.json()
    assert (figures["ready"], figures["draining"]) == (True, False)
    [known] = figures["engines"]
    assert (known["state"], known["models"]) == ("ready", ["ernie-demo"])
    assert str(engine.port) not in answer.text
    assert "127.0.0.1" not in answer.text


async def test_figures_hold_what_went_on_and_no_text_of_a_client(gateway: RunningGateway) -> None:
    secret = "the butler did it"  # noqa: S105  (a phrase to look for)
    body = {**STREAMED, "messages": [{"role": "user", "content": secret}]}
    await gateway.chat(body, headers={"x-request-id": "wanted-by-nobody"})
    await gateway.chat({**body, "temperature": secret})
    await eventually(lambda: not len(gateway.parts.in_flight))
    before = Totals()
    history = gateway.parts.history
    history.take(before, 1.0)
    history.take(Totals(tokens=12, first_tokens=1, first_token_seconds=0.5, troubles=(1.0,) * 7), 1.0)
    answer = await gateway.client.get("/status/figures")
    figures = answer.json()
    assert figures["tokens_per_second"][-1] == 12
    assert figures["first_token_seconds"][-2:] == [None, 0.5]
    assert [trouble["outcome"] for trouble in figures["last_troubles"]] == [
        "rate_limited",
        "not_ready",
        "overloaded",
        "internal_error",
        "timeout",
        "truncated",
        "upstream_error",
    ]
    assert secret not in answer.text
    assert "wanted-by-nobody" not in answer.text


async def test_an_engine_that_is_away_is_shown_as_that(engine: FakeEngine, gateway: RunningGateway) -> None:
    await engine.stop()
    await gateway.becomes("unreachable")
    figures = (await gateway.client.get("/status/figures")).json()
    assert figures["ready"] is False
    assert figures["engines"][0]["state"] == "unreachable"


async def test_engines_are_targets_as_prometheus_reads_them(engine: FakeEngine, gateway: RunningGateway) -> None:
    answer = await gateway.client.get("/status/targets")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == [{"targets": [f"127.0.0.1:{engine.port}"], "labels": {"__scheme__": "http"}}]


async def test_only_get_and_nothing_below(gateway: RunningGateway) -> None:
    assert (await gateway.client.post("/status", content=b"x")).status_code == 405
    assert (await gateway.client.get("/status/")).status_code == 404
    assert (await gateway.client.get("/status/../app.py")).status_code == 404
    assert await gateway.metric("gateway_requests_total", route="status", outcome="client_error") == 1
    assert json.loads((await gateway.client.get("/status/nothing")).text)["error"]["code"] == "not_found"
