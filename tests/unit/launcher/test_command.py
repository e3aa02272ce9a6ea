"""Command line and environment of the server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from launcher import checkpoint as checkpoints
from launcher.command import Command, build, server_environment, with_caches
from launcher.hardware import Hardware
from launcher.installation import Installation, read_flags
from launcher.plan import make
from launcher.settings import Settings

Machine = Callable[[str], Hardware]
Install = Callable[[str], Installation]


def _value(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


@pytest.fixture
def argv(model: Path, machine: Machine, installation: Install) -> Callable[..., tuple[str, ...]]:
    """The command line for a card and settings."""

    def make_argv(card: str, **settings: object) -> tuple[str, ...]:
        chosen = Settings.model_validate({"model": str(model), "served_name": "ernie", **settings})
        checkpoint = checkpoints.inspect(model)
        device, build_name = ("cpu", "cpu") if card == "none" else ("cuda", "cuda")
        return build(chosen, make(chosen, machine(card), checkpoint, device), checkpoint, installation(build_name))

    return make_argv


def test_on_a_card(argv: Callable[..., tuple[str, ...]], model: Path) -> None:
    words = argv("a10", port=8123)
    assert words[:3] == ("vllm", "serve", str(model))
    assert _value(words, "--served-model-name") == "ernie"
    assert (_value(words, "--host"), _value(words, "--port")) == ("127.0.0.1", "8123")
    assert int(_value(words, "--kv-cache-memory-bytes")) > 1 << 30
    assert 0 < float(_value(words, "--gpu-memory-utilization")) < 0.5
    assert _value(words, "--shutdown-timeout") == "25"
    assert _value(words, "--middleware") == "launcher.draining.Draining"
    assert "--disable-fastapi-docs" in words
    assert "--enforce-eager" not in words


def test_on_a_cpu(argv: Callable[..., tuple[str, ...]]) -> None:
    words = argv("none")
    assert "--enforce-eager" in words
    assert "--gpu-memory-utilization" not in words
    assert _value(words, "--max-num-seqs") == "16"


def test_settings_become_flags(argv: Callable[..., tuple[str, ...]]) -> None:
    words = argv(
        "a10",
        dtype="float16",
        max_model_len=4096,
        max_sequences=32,
        eager="on",
        quantization="fp8_per_tensor",
        extra_args=("--stream-interval", "4"),
        shutdown_timeout_seconds=3,
    )
    assert _value(words, "--dtype") == "float16"
    assert _value(words, "--max-model-len") == "4096"
    assert _value(words, "--max-num-seqs") == "32"
    assert _value(words, "--quantization") == "fp8_per_tensor"
    assert _value(words, "--shutdown-timeout") == "0"
    assert "--enforce-eager" in words
    assert words[-2:] == ("--stream-interval", "4")


def test_flags_that_this_vllm_lacks_are_left_out(model: Path, machine: Machine, installation: Install) -> None:
    settings, checkpoint = Settings(model=str(model)), checkpoints.inspect(model)
    old = replace(installation("cuda"), flags=frozenset())
    words = build(settings, make(settings, machine("a10"), checkpoint, "cuda"), checkpoint, old)
    assert "--disable-fastapi-docs" not in words
    assert "--shutdown-timeout" not in words


def test_the_servers_environment(model: Path, machine: Machine) -> None:
    settings = Settings(model=str(model))
    plan = make(settings, machine("none"), checkpoints.inspect(model), "cpu")
    own = {
        "PATH": "/bin",
        "HOME": "/home/user",
        "ENGINE_MODEL": "demo",
        "HF_TOKEN": "secret",
        "VLLM_CPU_KVCACHE_SPACE": "40",
        "VLLM_LOGGING_LEVEL": "DEBUG",
    }
    result = server_environment(settings, plan, own)
    assert result["HF_HUB_OFFLINE"] == "1"
    assert result["HF_TOKEN"] == "secret"  # noqa: S105
    assert result["HOME"] == "/home/user"
    assert result["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert not [name for name in result if name.startswith("ENGINE_")]
    assert "VLLM_CPU_KVCACHE_SPACE" not in result
    assert (Path(result["PYTHONPATH"]) / "launcher/draining.py").is_file()
    assert "HF_HOME" not in result


def test_a_secret_is_never_in_the_arguments(argv: Callable[..., tuple[str, ...]]) -> None:
    assert "hf_0123" not in str(Command(argv("a10"), {"HF_TOKEN": "hf_0123"}))


def test_all_caches_lie_below_one_folder() -> None:
    result = with_caches(Settings(cache_dir="/cache"), {"HOME": "/", "HF_HOME": "/models/hf", "PATH": "/bin"})
    assert result["HOME"] == "/cache"
    assert result["HF_HOME"] == "/models/hf"
    assert result["VLLM_CACHE_ROOT"] == "/cache/vllm"
    moved = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "XDG_CACHE_HOME")
    assert all(result[name].startswith("/cache/") for name in moved)
    assert result["USER"]


def test_flags_are_read_from_vllms_sources(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "entrypoints/common").mkdir(parents=True)
    (tmp_path / "engine/arg_utils.py").write_text(
        "class EngineArgs:\n"
        "    max_model_len: int = 0\n"
        "    def add(self, parser):\n"
        '        parser.add_argument("--dtype", "-d", default="--not-a-flag")\n'
    )
    (tmp_path / "entrypoints/common/cli_args.py").write_text("class FrontendArgs:\n    port: int = 8000\n")
    assert read_flags(tmp_path) == {"--dtype", "-d", *("--max-model-len", "--no-max-model-len", "--port", "--no-port")}


def test_an_unknown_layout_of_the_sources_checks_nothing(tmp_path: Path) -> None:
    assert read_flags(tmp_path) == frozenset()
