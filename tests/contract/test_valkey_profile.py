"""Compose's Valkey: there when asked for, reachable by the gateway alone, and it forgets nobody."""

from typing import Any

import yaml

from tests.conftest import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
VALKEY = COMPOSE["services"]["valkey"]


def test_it_is_started_only_when_asked_for() -> None:
    assert VALKEY["profiles"] == ["valkey"]
    assert all("valkey" not in (service.get("depends_on") or {}) for service in COMPOSE["services"].values())


def test_it_is_closed_to_all_but_the_gateway() -> None:
    assert "ports" not in VALKEY
    assert VALKEY["networks"] == ["state"]
    assert COMPOSE["networks"]["state"]["internal"] is True
    joined = {name for name, service in COMPOSE["services"].items() if "state" in service["networks"]}
    assert joined == {"gateway", "valkey"}


def test_it_runs_as_nobody_on_a_read_only_disk_and_never_evicts() -> None:
    assert VALKEY["read_only"] is True
    assert VALKEY["cap_drop"] == ["ALL"]
    assert VALKEY["user"] not in {"", "0", "root"}
    command = VALKEY["command"]
    assert command[command.index("--save") + 1] == ""
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def test_chat_uis_key_lies_in_a_volume_of_its_own() -> None:
    mounts = {name: service.get("volumes", []) for name, service in COMPOSE["services"].items()}
    assert "chat-ui-key:/secrets" in mounts["gateway"]
    assert "chat-ui-key" in COMPOSE["volumes"]
    assert {name for name, volumes in mounts.items() if any("chat-ui-key" in str(one) for one in volumes)} <= {
        "gateway",
        "chat-ui",
    }
