"""Writes Grafana's dashboards from dashboards.yml: `python -m monitoring.dashboards`.

A panel in Grafana's own form is forty lines, of which four are ours.
"""

import json
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "dashboards.yml"
TARGET = FOLDER / "grafana" / "dashboards"
DATA_SOURCE = {"type": "prometheus", "uid": "prometheus"}
COLUMNS = 24  # of Grafana's grid
STAT = {"width": 6, "height": 4}
GRAPH = {"width": 12, "height": 8}
SCHEMA_VERSION = 39


def build(source: Path = SOURCE) -> dict[str, dict[str, Any]]:
    """Return each dashboard of the source in Grafana's form, by the name of its file."""
    described = yaml.safe_load(source.read_text(encoding="utf-8"))
    return {f"{one['uid']}.json": _dashboard(one) for one in described}


def write(target: Path = TARGET) -> None:
    """Write every dashboard's file."""
    target.mkdir(parents=True, exist_ok=True)
    for name, dashboard in build().items():
        text = json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"
        (target / name).write_text(text, encoding="utf-8")


def _dashboard(described: dict[str, Any]) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    x = y = height = 0
    for number, panel in enumerate(described["panels"], start=1):
        size = STAT if panel.get("as") == "stat" else GRAPH
        if x + size["width"] > COLUMNS or (height and height != size["height"]):
            x, y = 0, y + height
        height = size["height"]
        place = {"x": x, "y": y, "w": size["width"], "h": height}
        panels.append({"id": number, "gridPos": place} | _panel(panel))
        x += size["width"]
    return {
        "uid": described["uid"],
        "title": described["title"],
        "description": described["about"],
        "tags": ["ernie"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["ernie"], "title": "ERNIE", "asDropdown": False}],
        "panels": panels,
    }


def _panel(described: dict[str, Any]) -> dict[str, Any]:
    is_stat = described.get("as") == "stat"
    targets = [
        {"refId": chr(ord("A") + number), "datasource": DATA_SOURCE, "expr": str(query), "legendFormat": legend}
        for number, (legend, query) in enumerate(described["queries"].items())
    ]
    return {
        "type": "stat" if is_stat else "timeseries",
        "title": described["title"],
        "description": described.get("about", ""),
        "datasource": DATA_SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": described["unit"]} | ({} if is_stat else {"min": 0}), "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if is_stat else {"tooltip": {"mode": "multi"}},
    }


if __name__ == "__main__":
    write()
