"""Weights by the real clients from hubs on this machine: fetched once, whole, and never asked for again."""

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from launcher.weights import read_progress

from tests.fakes.checkpoints import read_weights, write_weights
from tests.fakes.hubs import CHUNK, COMMIT, Hub, git_name, sha256

from .conftest import DEMO, PYTHON, environment, free_port, run_launcher

pytestmark = pytest.mark.engine

WEIGHTS = "model.safetensors"


def _settings(hub_url: str, cache: Path, **more: str) -> dict[str, str]:
    return {"ENGINE_MODEL": "owner/demo", "ENGINE_HUB_ENDPOINT": hub_url, "ENGINE_CACHE_DIR": str(cache), **more}


def _enlarge(hub: Hub, folder: Path) -> int:
    """Give the hub weights of some 34 MB, of which the clients keep parts; return their size."""
    rows = read_weights(DEMO / WEIGHTS)
    write_weights(folder / WEIGHTS, {**rows, "model.extra": ("BF16", [13_000_000], bytes(26_000_000))})
    hub.files[WEIGHTS] = (folder / WEIGHTS).read_bytes()
    return len(hub.files[WEIGHTS])


def _modelscope(hub: Hub, cache: Path, **more: str) -> dict[str, str]:
    return _settings(hub.url, cache, ENGINE_HUB="modelscope", **more)


def test_fetched_once_then_no_hub_is_needed(hub: Hub, tmp_path: Path) -> None:
    asked = run_launcher("check", **_settings(hub.url, tmp_path))
    assert asked.returncode == 0, asked.stderr
    assert "the hub has them" in asked.stderr
    assert not list(tmp_path.rglob("*.safetensors"))

    fetched = run_launcher("fetch", **_settings(hub.url, tmp_path, HF_TOKEN="hf_secret"))  # noqa: S106
    assert fetched.returncode == 0, fetched.stderr
    assert "owner/demo is whole" in fetched.stderr
    assert f"owner/demo at commit {COMMIT} has 6 files" in fetched.stderr
    assert "100 %: 9 of 9 MB" in fetched.stderr
    assert hub.tokens_at_store == [""]
    assert "hf_secret" not in fetched.stderr

    hub.requests.clear()
    for revision in ("", "main", COMMIT):
        settings = _settings(f"http://127.0.0.1:{free_port()}", tmp_path, ENGINE_REVISION=revision)
        offline = run_launcher("check", "--hashes", **settings)
        assert offline.returncode == 0, offline.stderr
        assert "6 files have the hashes of the hub" in offline.stderr
        assert "all is sound" in offline.stderr
    assert hub.requests == []


def test_a_download_that_was_killed_goes_on_where_it_stopped(hub: Hub, tmp_path: Path) -> None:
    size = _enlarge(hub, tmp_path)
    cache, sent, stuck, go_on = tmp_path / "cache", 0, threading.Event(), threading.Event()

    def stop_at_half() -> None:
        nonlocal sent
        sent += 1
        if sent * CHUNK > size / 2:
            stuck.set()
            go_on.wait(30)

    hub.before_chunk = stop_at_half
    words = [PYTHON, "-m", "launcher", "fetch"]
    with subprocess.Popen(words, env=environment(**_settings(hub.url, cache)), stderr=subprocess.PIPE) as fetching:
        assert stuck.wait(60)
        part = next(cache.rglob("*.part"))
        deadline = time.monotonic() + 20
        while part.stat().st_size < size / 3 and time.monotonic() < deadline:
            assert fetching.poll() is None
        fetching.kill()
    go_on.set()
    begun = part.stat().st_size
    assert size / 3 < begun < size

    # What is there is not taken for the whole.
    offline = run_launcher("check", **_settings(hub.url, cache, ENGINE_OFFLINE="on"))
    assert offline.returncode == 3, offline.stderr
    hub.before_chunk = lambda: None
    whole = run_launcher("fetch", **_settings(hub.url, cache))
    assert whole.returncode == 0, whole.stderr
    assert hub.ranges == [f"bytes={begun}-"]
    assert f"model.safetensors goes on at {100 * begun / size:.0f} %" in whole.stderr
    assert not list(cache.rglob("*.part"))
    assert run_launcher("check", "--hashes", **_settings(hub.url, cache, ENGINE_OFFLINE="on")).returncode == 0


def test_a_line_that_breaks_is_taken_up_again(hub: Hub, tmp_path: Path) -> None:
    _enlarge(hub, tmp_path)
    hub.cut_at, hub.cuts = 9_000_000, 2
    whole = run_launcher("fetch", **_settings(hub.url, tmp_path / "cache"))
    assert whole.returncode == 0, whole.stderr
    first, second = (int(wanted.removeprefix("bytes=").rstrip("-")) for wanted in hub.ranges)
    assert 7_000_000 < first <= 9_000_000 < second <= 18_000_000


def test_an_interrupted_upload_is_completed(hub: Hub, tmp_path: Path) -> None:
    weights = hub.files.pop(WEIGHTS)
    broken = run_launcher("fetch", **_settings(hub.url, tmp_path))
    assert broken.returncode == 4
    assert "has no weights" in broken.stderr
    hub.files[WEIGHTS] = weights
    # The client remembers a commit's file list; a completed upload is a new commit on a real hub.
    for remembered in tmp_path.rglob("trees"):
        for file in remembered.iterdir():
            file.unlink()
    whole = run_launcher("fetch", **_settings(hub.url, tmp_path))
    assert whole.returncode == 0, whole.stderr


@pytest.mark.parametrize(("name", "code"), [(WEIGHTS, 3), ("tokenizer.json", 4)])
def test_what_is_not_what_the_hub_promised_is_not_kept(hub: Hub, tmp_path: Path, name: str, code: int) -> None:
    hub.spoiled.add(name)
    spoiled = run_launcher("fetch", **_settings(hub.url, tmp_path))
    assert spoiled.returncode == code, spoiled.stderr
    last = spoiled.stderr.splitlines()[-1]
    assert name in last
    assert (sha256 if name == WEIGHTS else git_name)(hub.files[name]) in last
    assert run_launcher("check", **_settings(hub.url, tmp_path, ENGINE_OFFLINE="on")).returncode == 3


def test_a_mirror_that_tells_no_hashes_is_taken_at_its_word(hub: Hub, tmp_path: Path) -> None:
    hub.tagless = True
    fetched = run_launcher("fetch", **_settings(hub.url, tmp_path))
    assert fetched.returncode == 0, fetched.stderr
    assert f"{WEIGHTS} has no hash at this hub" in fetched.stderr
    again = run_launcher("check", "--hashes", **_settings(hub.url, tmp_path))
    assert "5 files have the hashes of the hub" in again.stderr


def test_a_changed_file_is_found_by_its_hash(hub: Hub, tmp_path: Path) -> None:
    settings = _settings(hub.url, tmp_path)
    assert run_launcher("fetch", **settings).returncode == 0
    weights = next(tmp_path.rglob(WEIGHTS)).resolve()
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert run_launcher("check", **settings).returncode == 0
    found = run_launcher("check", "--hashes", **settings)
    assert found.returncode == 4
    assert f"Delete {weights} and run `launcher fetch`" in found.stderr
    weights.unlink()
    assert run_launcher("fetch", **settings).returncode == 0
    assert run_launcher("check", "--hashes", **settings).returncode == 0


def test_a_truncated_file_in_the_cache_is_told(hub: Hub, tmp_path: Path) -> None:
    assert run_launcher("fetch", **_settings(hub.url, tmp_path)).returncode == 0
    weights = next(tmp_path.rglob(WEIGHTS)).resolve()
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


def test_the_progress_is_told_line_by_line(hub: Hub, tmp_path: Path) -> None:
    go_on = threading.Event()
    hub.before_chunk = lambda: _wait(go_on)
    told = tmp_path / "progress"
    os.mkfifo(told)
    words = [PYTHON, "-m", "launcher", "fetch", "--progress", str(told)]
    with subprocess.Popen(words, env=environment(**_settings(hub.url, tmp_path)), stderr=subprocess.PIPE) as fetching:
        with told.open(encoding="utf-8") as lines:
            step = read_progress(next(lines))
            go_on.set()
            steps = [read_progress(line) for line in lines]
        _, log = fetching.communicate(timeout=60)
    assert fetching.returncode == 0, log
    assert step is not None
    assert step.fraction < 0.1
    assert steps[-1] is not None
    assert steps[-1].done == steps[-1].total == sum(map(len, hub.files.values()))


def test_modelscope_fetched_once_then_no_hub_is_needed(modelscope: Hub, tmp_path: Path) -> None:
    asked = run_launcher("check", **_modelscope(modelscope, tmp_path))
    assert asked.returncode == 0, asked.stderr
    assert "the hub has them" in asked.stderr
    fetched = run_launcher("fetch", **_modelscope(modelscope, tmp_path))
    assert fetched.returncode == 0, fetched.stderr
    assert "owner/demo is whole" in fetched.stderr
    assert "100 %: 9 of 9 MB" in fetched.stderr
    modelscope.requests.clear()
    offline = run_launcher("check", "--hashes", **_modelscope(modelscope, tmp_path))
    assert offline.returncode == 0, offline.stderr
    assert "6 files have the hashes of the hub" in offline.stderr
    assert modelscope.requests == []


def test_modelscope_goes_on_where_it_stopped(modelscope: Hub, tmp_path: Path) -> None:
    _enlarge(modelscope, tmp_path)
    cache = tmp_path / "cache"
    modelscope.cut_at, modelscope.cuts = 20_000_000, 1
    whole = run_launcher("fetch", **_modelscope(modelscope, cache))
    assert whole.returncode == 0, whole.stderr
    (wanted,) = modelscope.ranges
    assert 0 < int(wanted.removeprefix("bytes=").rstrip("-")) <= 20_000_000
    assert run_launcher("check", "--hashes", **_modelscope(modelscope, cache)).returncode == 0


def test_modelscope_that_is_wrong_or_away(modelscope: Hub, tmp_path: Path) -> None:
    nothing = run_launcher("check", **_modelscope(modelscope, tmp_path, ENGINE_MODEL="owner/other"))
    assert nothing.returncode == 2, nothing.stderr
    assert "ENGINE_MODEL" in nothing.stderr.splitlines()[-1]


def test_a_download_is_stopped_at_once(hub: Hub, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        _wait(go_on)

    hub.before_chunk = hang
    settings = {"ENGINE_PORT": str(free_port()), **_settings(hub.url, tmp_path)}
    words = [PYTHON, "-m", "launcher"]
    with subprocess.Popen(words, env=environment(**settings), stderr=subprocess.PIPE, text=True) as serving:
        assert begun.wait(60)
        begin = time.monotonic()
        serving.send_signal(signal.SIGTERM)
        _, log = serving.communicate(timeout=30)
    go_on.set()
    assert serving.returncode == 0, log
    assert time.monotonic() - begin < 6
    assert "stopped while fetching" in log


def _wait(event: threading.Event) -> None:
    assert event.wait(30)
