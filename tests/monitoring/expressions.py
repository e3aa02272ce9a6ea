"""Every expression of the rules and the dashboards, and the series that each of them asks for."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from monitoring.dashboards import build
from tests.conftest import ROOT

RULES = ROOT / "monitoring/rules/alerts.yml"
# Words of the language that look like a metric's name.
WORDS = {"and", "or", "unless", "by", "on", "without", "ignoring", "group_left", "group_right", "offset", "bool", "inf"}
_STRING = re.compile(r'"[^"]*"')
_LABEL_LIST = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)")
_SELECTOR = re.compile(r"(?<![\w:])(?P<name>[A-Za-z_:][\w:]*)(?P<labels>\{[^}]*\})?(?![\w:]|\s*\()")


def alerts() -> list[dict[str, Any]]:
    """Return every alert rule."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """Return every expression by where it stands, Grafana's variables replaced."""
    found = {f"alert {rule['alert']}": rule["expr"] for rule in alerts()}
    for file, dashboard in build().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                place = f"{file}: {panel['title']} {target['refId']} ({panel['id']})"
                found[place] = target["expr"].replace("$__rate_interval", "5m")
    return found


def selectors() -> dict[str, str]:
    """Return each series that is asked for, name and label matchers, with one place where it stands."""
    return {selector: place for place, expression in expressions().items() for selector in selectors_in(expression)}


def selectors_in(expression: str) -> Iterator[str]:
    """Give the name and the matchers of every selector of an expression."""
    bare = re.sub(r"\[[^\]]*\]|\boffset \w+", "", expression)
    strings: list[str] = []

    def hide(found: re.Match[str]) -> str:
        strings.append(found[0])
        return f'"{len(strings) - 1}"'

    hidden = _LABEL_LIST.sub("", _STRING.sub(hide, bare))
    for found in _SELECTOR.finditer(hidden):
        name, labels = found["name"], found["labels"] or ""
        if name.lower() not in WORDS:
            yield name + re.sub(r'"(\d+)"', lambda number: strings[int(number[1])], labels)
