"""Rules, dashboards and containers, without starting any."""

import json
import re
from typing import Any

import pytest
import yaml
from gateway.settings import Settings

from monitoring.dashboards import COLUMNS, TARGET, build
from tests.conftest import ROOT
from tests.monitoring.expressions import alerts, expressions, selectors, selectors_in

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.monitoring.yml").read_text(encoding="utf-8"))[
    "services"
]
GUIDE = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")


def test_the_dashboards_are_those_of_their_source() -> None:
    written = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in TARGET.glob("*.json")}
    assert written == build(), "call `python -m monitoring.dashboards`"


@pytest.mark.parametrize("dashboard", build().values(), ids=build())
def test_a_dashboard_is_one_that_grafana_can_show(dashboard: dict[str, Any]) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", dashboard["uid"])
    sources = yaml.safe_load((ROOT / "monitoring/grafana/provisioning/datasources/prometheus.yml").read_text())
    known = {source["uid"] for source in sources["datasources"]}
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, f"{panel['title']} lies on another panel"
        taken |= cells
        assert panel["title"]
        assert panel["datasource"]["uid"] in known
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        # A colour and a name for each line: a graph of several series says which is which.
        assert panel["type"] == "stat" or all(target["legendFormat"] for target in panel["targets"])


def test_the_dashboards_show_what_was_asked_for() -> None:
    asked = {
        "ernie-users.json": ["time_to_first_token", "tokens_total", "requests_total", "queue_depth"],
        "ernie-engine.json": [
            "num_requests_running",
            "num_requests_waiting",
            "kv_cache_usage_perc",
            "prefix_cache_hits",
            "num_preemptions",
            "iteration_tokens",
        ],
        "ernie-card.json": ["FB_USED", "GPU_UTIL", "POWER_USAGE", "GPU_TEMP", "XID_ERRORS"],
        "ernie-limits.json": ["gateway_rate_limited_total"],
    }
    for file, names in asked.items():
        text = " ".join(expression for place, expression in expressions().items() if place.startswith(file))
        assert [name for name in names if name not in text] == []


def test_selectors_are_read_out_of_expressions() -> None:
    expression = 'sum by (le, engine) (rate(a:b_total{x=~"y|by (z)"}[5m])) / c_count > 0.95 and vector(0) < 5e3 * -Inf'
    assert list(selectors_in(expression)) == ['a:b_total{x=~"y|by (z)"}', "c_count"]
    assert any(selector.startswith("DCGM_FI_DEV_FB_USED") for selector in selectors())


@pytest.mark.parametrize("alert", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"]["summary"].endswith(".")
    page, _, heading = alert["annotations"]["runbook"].partition("#")
    assert page == "docs/monitoring.md"
    assert heading == alert["alert"].lower()
    assert f"\n### {alert['alert']}\n" in GUIDE, "its part of the page is missing"


def test_the_page_describes_no_alert_that_is_gone() -> None:
    assert set(re.findall(r"^### (\w+)$", GUIDE, flags=re.MULTILINE)) == {rule["alert"] for rule in alerts()}


def test_every_alert_is_tested() -> None:
    tests = (ROOT / "tests/monitoring/alerts.yml").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in alerts() if f'alertname="{rule["alert"]}"' not in tests] == []


def test_the_memory_alert_comes_before_the_container_is_ended() -> None:
    stack = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert stack["services"]["gateway"]["deploy"]["resources"]["limits"]["memory"] == "1g"
    [alert] = [rule for rule in alerts() if rule["alert"] == "GatewayMemory"]
    assert "> 800 * 1024 * 1024" in alert["expr"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service["user"].startswith(("0", "root"))
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert re.fullmatch(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+[\w.-]*", service["image"]), "pinned to a version"


def test_nothing_is_published_but_on_this_host() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {
        "prometheus": ["127.0.0.1:${STACK_PROMETHEUS_PORT:-9090}:9090"],
        "grafana": ["127.0.0.1:${STACK_GRAFANA_PORT:-3000}:3000"],
    }


def test_prometheus_asks_at_the_ports_where_compose_lets_them_listen() -> None:
    text = (ROOT / "monitoring/prometheus.yml").read_text(encoding="utf-8")
    environment = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["gateway"][
        "environment"
    ]
    assert f"names: [gateway], type: A, port: {environment['GATEWAY_PORT']}" in text
    assert f"http://gateway:{environment['GATEWAY_PORT']}/status/targets" in text
    assert int(environment["GATEWAY_PORT"]) == Settings.model_fields["port"].default
