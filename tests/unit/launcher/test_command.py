"""Command line and environment of the server."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from launcher import checkpoint as checkpoints
from launcher.checkpoint import Checkpoint
from launcher.command import Command, build, server_environment, with_caches
from launcher.errors import BadSetting
from launcher.hardware import Hardware
from launcher.installation import Installation, read_flags
from launcher.planning.plan import make
from launcher.settings import Settings

from .conftest import with_cards

Machine = Callable[[str], Hardware]
Install = Callable[[str], Installation]


def _value(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


@pytest.fixture
def argv(model: Path, machine: Machine, installation: Install) -> Callable[..., tuple[str, ...]]:
    """The command line for a card and settings."""

    def make_argv(card: str, index: int = 0, **settings: object) -> tuple[str, ...]:
        chosen = Settings.model_validate({"model": str(model), "served_name": "ernie", **settings})
        checkpoint = checkpoints.inspect(model)
        device = "cpu" if card == "none" else "cuda"
        return build(chosen, make(chosen, machine(card), checkpoint, device), checkpoint, installation(device), index)

    return make_argv


def test_on_a_card(argv: Callable[..., tuple[str, ...]], model: Path) -> None:
    words = argv("a10", port=8123)
    assert words[:3] == ("vllm", "serve", str(model))
    assert _value(words, "--served-model-name") == "ernie"
    assert (_value(words, "--host"), _value(words, "--port")) == ("127.0.0.1", "8123")
    assert int(_value(words, "--kv-cache-memory-bytes")) > 1 << 30
    assert 0 < float(_value(words, "--gpu-memory-utilization")) < 0.5
    assert _value(words, "--shutdown-timeout") == "25"
    assert [words[at + 1] for at, word in enumerate(words) if word == "--middleware"] == [
        "launcher.draining.Draining",
        # The later is the outer: what the other refuses is logged too.
        "launcher.request_log.RequestLog",
    ]
    assert "--disable-fastapi-docs" in words
    assert "--enforce-eager" not in words


def test_traces_go_where_they_are_sent(
    argv: Callable[..., tuple[str, ...]], ernie: Checkpoint, machine: Machine
) -> None:
    assert "--otlp-traces-endpoint" not in argv("a10")
    sent = argv("a10", otlp_endpoint="http://collector:4318/")
    assert _value(sent, "--otlp-traces-endpoint") == "http://collector:4318/v1/traces"
    settings = Settings(model="baidu/ERNIE-4.5-0.3B-PT", otlp_endpoint="http://collector:4318")
    plan = make(settings, machine("a10"), ernie, "cuda")
    result = server_environment(settings, plan, {"OTEL_SERVICE_NAME": "mine"})
    # vLLM takes OTLP for gRPC unless told.
    assert result["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf"
    assert result["OTEL_SERVICE_NAME"] == "mine"
    assert "OTEL_SERVICE_NAME" not in server_environment(Settings(), plan, {})


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


def test_each_engine_has_its_port_and_its_cards(ernie: Checkpoint, machine: Machine, installation: Install) -> None:
    settings = Settings(replicas=3)
    plan = make(settings, with_cards(machine("h200"), 2), ernie, "cuda")
    commands = [build(settings, plan, ernie, installation("cuda"), index) for index in range(plan.engines)]
    assert [_value(words, "--port") for words in commands] == ["8000", "8091", "8092"]
    assert {(*words[: words.index("--port")], *words[words.index("--port") + 2 :]) for words in commands} == {
        (*commands[0][: commands[0].index("--port")], *commands[0][commands[0].index("--port") + 2 :])
    }
    own = {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "VLLM_USE_RUST_FRONTEND": "1"}
    environments = [server_environment(settings, plan, own, index) for index in range(plan.engines)]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["0", "1", "0"]
    assert {environment["CUDA_DEVICE_ORDER"] for environment in environments} == {"PCI_BUS_ID"}
    assert not any("VLLM_USE_RUST_FRONTEND" in environment for environment in environments)


def test_the_choices_of_the_plan_become_flags(argv: Callable[..., tuple[str, ...]]) -> None:
    h200 = argv("h200", index=1)
    assert _value(h200, "--port") == "8091"
    assert _value(h200, "--max-num-seqs") == "512"
    assert _value(h200, "--max-num-batched-tokens") == "8192"
    assert "--attention-backend" not in h200
    assert _value(argv("t4"), "--attention-backend") == "TRITON_ATTN"
    assert _value(argv("h200", api_servers=4), "--api-server-count") == "4"
    a10 = argv("a10", kv_cache_dtype="fp8")
    assert (_value(a10, "--kv-cache-dtype"), _value(a10, "--attention-backend")) == ("fp8", "FLASHINFER")
    assert not {"--max-num-batched-tokens", "--tensor-parallel-size"} & {*a10}
    assert "--api-server-count" not in argv("a10", api_servers=1)


def test_the_rust_front_end_gets_none_of_the_python_ones_flags(argv: Callable[..., tuple[str, ...]]) -> None:
    words = argv("h200", front_end="rust", api_servers=4)
    python = ("--middleware", "--disable-fastapi-docs", "--disable-uvicorn-access-log", "--api-server-count")
    assert not {*python} & {*words}
    assert _value(words, "--shutdown-timeout") == "25"
    assert {*python} <= {*argv("h200", api_servers=4)}


def test_a_mixture_of_experts_over_cards(mixture: Checkpoint, machine: Machine, installation: Install) -> None:
    four = with_cards(machine("a10"), 4)
    settings = Settings(model="baidu/ERNIE-4.5-21B-A3B-PT")
    plan = make(settings, four, mixture, "cuda")
    words = build(settings, plan, mixture, installation("cuda"))
    assert _value(words, "--tensor-parallel-size") == "4"
    assert {"--enable-expert-parallel", "--enable-eplb"} <= {*words}
    assert json.loads(_value(words, "--eplb-config"))["log_balancedness"] is True
    assert server_environment(settings, plan, {})["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    single = make(settings, machine("h200"), mixture, "cuda")
    assert not {"--enable-expert-parallel", "--enable-eplb", "--eplb-config", "--tensor-parallel-size"} & {
        *build(settings, single, mixture, installation("cuda"))
    }


def test_several_http_processes_need_vllms_own_command(
    ernie: Checkpoint, machine: Machine, installation: Install
) -> None:
    settings = Settings(api_servers=2)
    module = replace(installation("cpu"), start=("python", "-m", "vllm.entrypoints.openai.api_server", "--model"))
    plan = make(settings, machine("cpu-large"), ernie, "cpu")
    with pytest.raises(BadSetting, match="ENGINE_API_SERVERS"):
        build(settings, plan, ernie, module)
    assert _value(build(settings, plan, ernie, installation("cpu")), "--api-server-count") == "2"


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
