"""A real Prometheus on the running stack: every series that a rule or a dashboard names is there.

The stack is the real one, vLLM on the CPU with the demo model. What only a card's exporter tells is held against the
names that NVIDIA publishes.
"""

import itertools
import re
from collections.abc import Iterator

import pytest

from tests.conftest import Stack
from tests.monitoring.conftest import Prometheus, wait_for
from tests.monitoring.expressions import alerts, expressions, selectors

pytestmark = [pytest.mark.monitoring, pytest.mark.stack]

# Fields of etc/default-counters.csv in NVIDIA/dcgm-exporter, those that need no profiling module.
CARD_NAMES = {
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED",
}


def _alternatives(selector: str) -> Iterator[str]:
    """Give the selector once for each of the words that a matcher like `a=~"x|y"` offers."""
    parts = re.split(r'=~"([^"]*)"', selector)
    for chosen in itertools.product(*(words.split("|") for words in parts[1::2])):
        yield "".join(
            text + (f'="{chosen[place]}"' if place < len(chosen) else "") for place, text in enumerate(parts[::2])
        )


def test_every_series_that_is_named_is_there(prometheus: Prometheus) -> None:
    asked = {one for selector in selectors() if not selector.startswith("DCGM_") for one in _alternatives(selector)}
    assert len(asked) > 60
    assert sorted(selector for selector in asked if not prometheus.query(f"count({selector})")) == []


def test_what_is_named_of_a_card_is_published_by_its_exporter() -> None:
    named = {selector for selector in selectors() if selector.startswith("DCGM_")}
    assert named
    assert named <= CARD_NAMES


def test_every_expression_is_evaluated(prometheus: Prometheus) -> None:
    for place, expression in expressions().items():
        assert isinstance(prometheus.query(expression), list), place


def test_rules_are_loaded_and_a_sound_stack_raises_no_alert_but_of_the_certificate(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    loaded = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(loaded) == {rule["alert"] for rule in alerts()}
    assert {rule["health"] for rule in loaded.values()} <= {"ok", "unknown"}
    raised = wait_for("the alert of the certificate", lambda: prometheus.get("alerts")["alerts"])
    assert {alert["labels"]["alertname"] for alert in raised} == {"CertificateEnds"}


def test_the_engine_is_found_through_the_gateway(prometheus: Prometheus, stack: Stack) -> None:
    [engine] = [one for one in prometheus.get("targets")["activeTargets"] if one["labels"]["job"] == "engine"]
    assert engine["labels"]["instance"] == f"127.0.0.1:{stack.ports['ENGINE_PORT']}"
    assert prometheus.query('sum(vllm:generation_tokens_total{job="engine"})')[0]["value"][1] != "0"


def test_nothing_of_a_person_is_in_a_label(prometheus: Prometheus) -> None:
    for label in prometheus.get("labels"):
        values = prometheus.get(f"label/{label}/values")
        assert not [value for value in values if "你好" in value], label
