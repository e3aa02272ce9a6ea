"""The commands from outside: exit codes and the one line that explains them. No vLLM is installed here."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from launcher import errors, preflight, survey
from launcher.hardware import Hardware, record
from launcher.installation import Installation
from launcher.settings import Settings
from launcher.supervision.backoff import End, History
from launcher.supervision.health import healthy

from .conftest import MACHINES
from .test_fleet import free_ports

pytestmark = pytest.mark.process

SERVICE = Path(__file__).resolve().parents[3] / "services" / "vllm"


def start_launcher(*words: str, **settings: str) -> subprocess.Popen[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ENGINE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "launcher", *words],
        env={**environment, "PYTHONPATH": str(SERVICE), "ENGINE_STATUS_PORT": "0", **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    printed, complained = process.communicate(timeout=30)
    return printed + complained


def _launcher(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    process = start_launcher(*words, **settings)
    printed, complained = process.communicate(timeout=30)
    return subprocess.CompletedProcess(words, process.returncode, printed, complained)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port with a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_an_unknown_setting_ends_with_2_and_one_line() -> None:
    done = _launcher("serve", ENGINE_PROT="8000")
    assert done.returncode == 2
    assert done.stderr == "launcher: ENGINE_PROT: there is no such setting; did you mean ENGINE_PORT?\n"


@pytest.mark.parametrize("name", ["ENGINE_PORT", "ENGINE_STATUS_PORT"])
def test_a_taken_port_ends_with_7_and_its_name(taken: int, tmp_path: Path, name: str) -> None:
    done = _launcher("serve", ENGINE_MODEL="demo", ENGINE_CACHE_DIR=str(tmp_path), **{name: str(taken)})
    assert done.returncode == 7
    assert done.stderr.startswith(f"launcher: {name}={taken} on 127.0.0.1 is taken")
    assert done.stderr.count("\n") == 1


def test_a_row_of_refusals_is_told_and_waited_out(taken: int, tmp_path: Path) -> None:
    settings = {"ENGINE_MODEL": "demo", "ENGINE_CACHE_DIR": str(tmp_path), "ENGINE_PORT": str(taken)}
    first, second = _launcher("serve", **settings), _launcher("serve", **settings)
    assert "waiting" not in first.stderr + second.stderr
    assert "1 ends in a row (exit codes 7)" in second.stderr
    [status_port] = free_ports(1)
    third = start_launcher("serve", **{**settings, "ENGINE_STATUS_PORT": str(status_port)})
    assert third.wait(20) == 7
    assert "waiting" not in output_of(third), "other settings may do better"


def test_a_stop_is_obeyed_while_it_waits_its_turn(taken: int, tmp_path: Path) -> None:
    [status_port] = free_ports(1)
    settings = {"ENGINE_MODEL": "demo", "ENGINE_CACHE_DIR": str(tmp_path), "ENGINE_PORT": str(taken)}
    settings["ENGINE_STATUS_PORT"] = str(status_port)
    history = History(tmp_path, Settings.from_environment(settings).model_dump_json())
    for _ in range(9):
        history.add(End(time.time(), 8, "vLLM ended", 0.0))
    waiting = start_launcher("serve", **settings)
    assert waiting.stderr is not None
    assert "9 ends in a row" in waiting.stderr.readline()
    assert "before the next try" in waiting.stderr.readline()
    seen = _launcher("status", ENGINE_STATUS_PORT=str(status_port))
    waiting.terminate()
    assert waiting.wait(20) == 0
    assert "stopped on SIGTERM while waiting" in output_of(waiting)
    assert json.loads(seen.stdout)["stage"] == "waiting"
    assert "after 9 ends in a row" in json.loads(seen.stdout)["detail"]


def test_status_and_last_words_of_nobody(tmp_path: Path) -> None:
    [port] = free_ports(1)
    assert _launcher("status", ENGINE_STATUS_PORT=str(port)).returncode == 1
    done = _launcher("last-words", ENGINE_CACHE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.77"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(errors.BadSetting, match="ENGINE_HOST"):
        preflight.require_port(Settings(host=host))


def test_the_reference_is_printed() -> None:
    done = _launcher("settings")
    assert done.returncode == 0
    assert "# ENGINE_PORT=8000\n" in done.stdout


class _Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        assert self.path == "/health"
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_health_follows_the_server_and_no_proxy(status: int, code: int) -> None:
    handler = type("Handler", (_Health,), {"status": status})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        done = _launcher("health", ENGINE_PORT=str(server.server_port), http_proxy="http://127.0.0.1:9")
        thread.join()
    assert done.returncode == code


def test_health_of_nothing_and_of_a_server_that_hangs(taken: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert _launcher("health", ENGINE_PORT=str(free.getsockname()[1])).returncode == 1
    assert not healthy("127.0.0.1", taken, timeout_seconds=0.1)


@pytest.fixture
def prepared(
    monkeypatch: pytest.MonkeyPatch, machine: Callable[[str], Hardware], installation: Callable[[str], Installation]
) -> Callable[[str, str], None]:
    """A machine with a card (or none) and a build of vLLM."""

    def make(card: str, build: str) -> None:
        monkeypatch.setattr(preflight.hardware, "detect", lambda _: machine(card))
        monkeypatch.setattr(preflight.Installation, "find", classmethod(lambda _: installation(build)))

    return make


def test_the_plan_is_printed_with_its_reasons_and_all_commands(
    prepared: Callable[[str, str], None], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared("h200", "cuda")
    assert survey.show_plan(Settings(model=str(model), served_name="ernie"), {"HF_TOKEN": "hf_0123"}) == 0
    printed = capsys.readouterr().out
    reasons, first, second = printed.split("\n\n")
    assert "NVIDIA H200, compute capability 9.0" in reasons
    assert first.startswith("engine 1 on port 8000:\nCUDA_DEVICE_ORDER=PCI_BUS_ID\nCUDA_VISIBLE_DEVICES=0\n")
    assert second.startswith("engine 2 on port 8091:\n")
    assert f"vllm serve {model} --served-model-name ernie --host 127.0.0.1 --port 8091" in second
    assert "hf_0123" not in printed


@pytest.mark.parametrize("own", ["none", "h200"])
def test_a_plan_for_a_machine_that_is_elsewhere(
    prepared: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str], own: str
) -> None:
    prepared(own, "cpu")
    hub = {"HF_HUB_CACHE": str(tmp_path)}
    for model, words in (("baidu/ERNIE-4.5-0.3B-PT", "NVIDIA A10,"), ("baidu/ERNIE-4.5-21B-A3B-PT", "8 x NVIDIA H200")):
        file = MACHINES / ("a10.json" if "0.3B" in model else "h200-x8.json")
        assert survey.show_plan(Settings(model=model), hub, file) == 0
        printed = capsys.readouterr().out
        assert printed.startswith(f"the weights of {model} are not on this machine: planned for their published shape")
        assert words in printed
        assert f"\nvllm serve {model} " in printed
    assert survey.show_plan(Settings(), hub, MACHINES / "cpu-small.json") == 0
    assert "CPU with 2 cores" in capsys.readouterr().out
    with pytest.raises(errors.UnsupportedHardware, match="V100"):
        survey.show_plan(Settings(), hub, MACHINES / "v100.json")
    with pytest.raises(errors.WeightsUnreachable):
        survey.show_plan(Settings(model="owner/unknown"), hub, MACHINES / "a10.json")


def test_the_hardware_is_printed_for_a_plan_elsewhere(tmp_path: Path) -> None:
    done = _launcher("hardware")
    (tmp_path / "machine.json").write_text(done.stdout)
    assert record.read(tmp_path / "machine.json").host.cores >= 1
    assert done.stderr == ""


def test_a_file_that_is_no_machine_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text("{}")
    done = _launcher("plan", "--hardware", str(tmp_path / "machine.json"))
    assert done.returncode == 2
    assert done.stderr.startswith("launcher: --hardware: ")
    assert done.stderr.count("\n") == 1


def test_every_engine_needs_a_port(taken: int) -> None:
    settings = Settings(status_port=taken - 1, port=1024)
    with pytest.raises(errors.PortTaken, match=f"port {taken} of engine 2 on 127.0.0.1 is taken"):
        preflight.require_port(settings, 1)
    with pytest.raises(errors.BadSetting, match="ENGINE_STATUS_PORT: several engines"):
        preflight.require_port(Settings(status_port=0), 1)
    with pytest.raises(errors.BadSetting, match="ENGINE_STATUS_PORT: engine 11 would get port 8000"):
        preflight.require_port(Settings(status_port=7990), 10)
    with pytest.raises(errors.BadSetting, match="ENGINE_STATUS_PORT: 8000 is ENGINE_PORT too"):
        preflight.require_port(Settings(status_port=8000))


def test_an_architecture_that_this_vllm_lacks(prepared: Callable[[str, str], None], model: Path) -> None:
    prepared("none", "cpu")
    text = (model / "config.json").read_text().replace("Ernie4_5ForCausalLM", "Ernie9ForCausalLM")
    (model / "config.json").write_text(text)
    with pytest.raises(errors.BrokenCheckpoint, match="does not know the architecture Ernie9ForCausalLM"):
        preflight.prepare(Settings(model=str(model)), {}, None)


def test_weights_that_are_not_here_are_obtained_once(
    prepared: Callable[[str, str], None], model: Path, tmp_path: Path
) -> None:
    prepared("none", "cpu")
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    calls: list[str] = []

    def obtain() -> bool:
        calls.append("obtain")
        repository = tmp_path / "hub/models--baidu--ERNIE-4.5-0.3B-PT"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs/main").write_text("c0ffee")
        (repository / "snapshots").mkdir()
        (repository / "snapshots/c0ffee").symlink_to(model)
        return True

    first = preflight.prepare(Settings(), environment, obtain)
    again = preflight.prepare(Settings(), environment, obtain)
    assert first is not None
    assert again is not None
    assert calls == ["obtain"]
    assert [command.argv for command in again.commands] == [command.argv for command in first.commands]


def test_a_broken_cache_is_obtained_again_and_a_broken_folder_is_not(
    prepared: Callable[[str, str], None], model: Path, tmp_path: Path
) -> None:
    prepared("none", "cpu")
    (model / "config.json").unlink()
    repository = tmp_path / "hub/models--baidu--ERNIE-4.5-0.3B-PT"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "snapshots/c0ffee").symlink_to(model)
    settings = Settings(revision="c0ffee")
    calls: list[str] = []

    def obtain() -> bool:
        calls.append("obtain")
        return False

    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    assert preflight.prepare(settings, environment, obtain) is None
    assert calls == ["obtain"]
    for offline in (Settings(revision="c0ffee", offline=True), Settings(model=str(model))):
        with pytest.raises(errors.BrokenCheckpoint, match=r"no config\.json"):
            preflight.prepare(offline, environment, obtain)
    assert calls == ["obtain"]


def test_offline_without_weights_ends_with_3(prepared: Callable[[str, str], None], tmp_path: Path) -> None:
    prepared("none", "cpu")
    with pytest.raises(errors.WeightsUnreachable, match="ENGINE_HUB_ENDPOINT"):
        preflight.prepare(Settings(offline=True), {"HF_HUB_CACHE": str(tmp_path)}, None)


def test_a_cache_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.BadSetting, match="ENGINE_CACHE_DIR"):
        preflight.require_cache(Settings(cache_dir=str(tmp_path / "file")))
    preflight.require_cache(Settings(cache_dir=str(tmp_path / "new")))
    assert list((tmp_path / "new").iterdir()) == []


def test_every_end_has_a_code_of_its_own() -> None:
    kinds = errors.LauncherError.__subclasses__()
    codes = {kind.exit_code for kind in kinds}
    assert len(codes) == len(kinds)
    assert codes == set(range(2, 14))
    assert all(f"{kind.__name__} {kind.exit_code} " in (errors.__doc__ or "") for kind in kinds)
