"""Prometheus's own tool on what it will be given: configuration, rules, the rules' tests, the dashboards' queries."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.monitoring.expressions import expressions

pytestmark = pytest.mark.monitoring


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_configuration_and_rules_are_accepted() -> None:
    done = promtool("check", "config", "monitoring/prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "21 rules found" in done.stdout


def test_alerts_fire_when_they_should_and_are_silent_when_not() -> None:
    done = promtool("test", "rules", "tests/monitoring/alerts.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rule_that_says_something_else_fails_its_test(tmp_path: Path) -> None:
    rules = (ROOT / "monitoring/rules/alerts.yml").read_text(encoding="utf-8")
    (tmp_path / "rules.yml").write_text(rules.replace("> 0.95 and", "> 0.995 and"), encoding="utf-8")
    tests = (ROOT / "tests/monitoring/alerts.yml").read_text(encoding="utf-8")
    (tmp_path / "tests.yml").write_text(tests.replace("../../monitoring/rules/alerts.yml", "rules.yml"))
    done = promtool("test", "rules", tmp_path / "tests.yml")
    assert done.returncode != 0
    assert "KVCacheFull" in done.stdout + done.stderr


def test_every_query_of_a_dashboard_parses(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression, "labels": {"place": place}}
        for number, (place, expression) in enumerate(expressions().items())
    ]
    assert len(rules) > 60
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", tmp_path / "rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr
