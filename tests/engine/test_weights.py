"""Weights by the real client from a hub on this machine: fetched once, whole, and never asked for again."""

import socket
import time
from pathlib import Path

import pytest

from .conftest import Hub, free_port, run_launcher

pytestmark = pytest.mark.engine


def _settings(hub_url: str, cache: Path, **more: str) -> dict[str, str]:
    return {"ENGINE_MODEL": "owner/demo", "ENGINE_HUB_ENDPOINT": hub_url, "ENGINE_CACHE_DIR": str(cache), **more}


def test_fetched_once_then_no_hub_is_needed(hub: Hub, tmp_path: Path) -> None:
    asked = run_launcher("check", **_settings(hub.url, tmp_path))
    assert asked.returncode == 0, asked.stderr
    assert "the hub has them" in asked.stderr
    assert not list(tmp_path.rglob("*.safetensors"))

    fetched = run_launcher("fetch", **_settings(hub.url, tmp_path))
    assert fetched.returncode == 0, fetched.stderr
    assert "owner/demo is whole" in fetched.stderr
    assert "GET /owner/demo/resolve/" in " ".join(hub.requests)

    hub.requests.clear()
    offline = run_launcher("check", **_settings(f"http://127.0.0.1:{free_port()}", tmp_path))
    assert offline.returncode == 0, offline.stderr
    assert "all is sound" in offline.stderr
    assert hub.requests == []


def test_an_interrupted_download_is_completed(hub: Hub, tmp_path: Path) -> None:
    weights = hub.files.pop("model.safetensors")
    broken = run_launcher("fetch", **_settings(hub.url, tmp_path))
    assert broken.returncode == 4
    assert "has no weights" in broken.stderr
    hub.files["model.safetensors"] = weights
    # The client remembers a commit's file list; a completed upload is a new commit on a real hub.
    for remembered in tmp_path.rglob("trees"):
        for file in remembered.iterdir():
            file.unlink()
    whole = run_launcher("fetch", **_settings(hub.url, tmp_path))
    assert whole.returncode == 0, whole.stderr


def test_a_truncated_file_in_the_cache_is_told(hub: Hub, tmp_path: Path) -> None:
    assert run_launcher("fetch", **_settings(hub.url, tmp_path)).returncode == 0
    weights = next(tmp_path.rglob("model.safetensors")).resolve()
    weights.write_bytes(weights.read_bytes()[:-100])
    done = run_launcher("check", **_settings(hub.url, tmp_path, ENGINE_OFFLINE="on"))
    assert done.returncode == 4
    assert "model.safetensors is truncated" in done.stderr


def test_a_repository_that_is_not_there(hub: Hub, tmp_path: Path) -> None:
    done = run_launcher("check", **_settings(hub.url, tmp_path, ENGINE_MODEL="owner/other"))
    assert done.returncode == 2
    assert "launcher: ENGINE_MODEL: " in done.stderr


def test_a_hub_that_refuses_and_an_empty_cache(tmp_path: Path) -> None:
    for settings in ({}, {"ENGINE_OFFLINE": "on"}):
        done = run_launcher("check", **_settings(f"http://127.0.0.1:{free_port()}", tmp_path, **settings))
        assert done.returncode == 3
        assert done.stderr.splitlines()[-1].startswith("launcher: owner/demo is not whole on this machine")


def test_a_hub_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begin = time.monotonic()
        done = run_launcher("check", **_settings(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path))
    assert done.returncode == 3
    assert time.monotonic() - begin < 60
