"""`make key`: what it writes is what the gateway reads, and the key itself is shown once and kept nowhere."""

import stat
from pathlib import Path

import pytest
from gateway.identity import Keys
from gateway.rates import Allowance

from ops.errors import StackError
from ops.keys import add_key, keys_file
from ops.settings import load_settings
from ops.supervision import Layout
from tests.conftest import ROOT


def test_the_gateway_knows_the_keys_that_were_made(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "api-keys"
    alice = add_key(file, "alice", "default")
    with file.open("a", encoding="utf-8") as text:
        text.write("tier team streams=2")
    bob = add_key(file, "bob@example.org", "team")
    keys = Keys(file, Allowance(streams=16))
    holders = [keys.holder_of(key.encode()) for key in (alice, bob)]
    assert [(holder.name, holder.allowance.streams) for holder in holders if holder] == [
        ("alice", 16),
        ("bob@example.org", 2),
    ]
    written = file.read_text(encoding="utf-8")
    assert alice not in written
    assert bob not in written
    assert len(alice.removeprefix("sk-")) >= 43
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [entry.name for entry in file.parent.iterdir()] == ["api-keys"]


@pytest.mark.parametrize(
    ("name", "tier", "said"),
    [
        ("alice", "default", "already"),
        ("", "default", "no name"),
        ("a b", "default", "no name"),
        ("b", "x", "no tier x"),
    ],
)
def test_what_the_gateway_would_refuse_is_not_written(tmp_path: Path, name: str, tier: str, said: str) -> None:
    file = tmp_path / "api-keys"
    add_key(file, "alice", "default")
    before = file.read_bytes()
    with pytest.raises(StackError, match=said):
        add_key(file, name, tier)
    assert file.read_bytes() == before


def test_both_ways_of_running_find_the_same_file() -> None:
    off = load_settings(ROOT, {})
    assert keys_file(off) == ROOT / "keys/api-keys"
    assert "GATEWAY_API_KEYS_FILE" not in Layout.of(off).gateway()
    on = load_settings(ROOT, {"GATEWAY_API_KEYS_FILE": "keys/others"})
    assert Layout.of(on).gateway()["GATEWAY_API_KEYS_FILE"] == str(ROOT / "keys/others")
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "- ./keys:/keys:ro" in compose
    assert "WORKDIR /\n" in (ROOT / "services/gateway/Dockerfile").read_text(encoding="utf-8")
