"""What is compared, and how each is started on one core with its engine behind it."""

import hashlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.gateway.processes import ROOT

# Sent to every system; ours and LiteLLM ask for it.
KEY = f"sk-{secrets.token_urlsafe(32)}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a system is to run: its port, one to spare, the engine's, a folder, its environment's programs."""

    port: int
    spare_port: int
    engine_port: int
    folder: Path
    programs: Path

    @property
    def engine(self) -> str:
        """The engine's base URL."""
        return f"http://127.0.0.1:{self.engine_port}"


@dataclass(frozen=True, slots=True)
class Command:
    """How a system is started, in its folder."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class System:
    """One way to the engine; `peer` names its requirements, where it has some."""

    name: str
    is_doing: str
    start: Callable[[Place], Command] | None
    peer: str = ""


def _nginx(place: Place) -> Command:
    file = place.folder / "nginx.conf"
    folders = "\n".join(
        f"    {kind}_temp_path {place.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file.write_text(f"""\
worker_processes 1;
daemon off;
pid {place.folder}/nginx.pid;
error_log {place.folder}/error.log;
events {{ worker_connections 4096; }}
http {{
{folders}
    access_log {place.folder}/access.log;
    keepalive_requests 1000000000;
    upstream engine {{
        server 127.0.0.1:{place.engine_port};
        keepalive 512;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{place.port} backlog=4096;
        client_max_body_size 8m;
        client_body_buffer_size 2m;
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
""")
    return Command(["nginx", "-e", str(place.folder / "error.log"), "-p", str(place.folder), "-c", str(file)])


def _gateway(place: Place) -> Command:
    keys = place.folder / "api-keys"
    keys.write_text(f"key bench default sha256:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    settings = {
        "GATEWAY_PORT": str(place.port),
        "GATEWAY_UPSTREAMS": place.engine,
        "GATEWAY_API_KEYS_FILE": str(keys),
        "GATEWAY_STATE_DIR": str(place.folder),
        # So high that nobody meets them: what they cost is part of what is measured.
        "GATEWAY_RATE_LIMIT_REQUESTS": "1000000000/minute",
        "GATEWAY_RATE_LIMIT_TOKENS": "1000000000/minute",
        "GATEWAY_MAX_STREAMS_PER_CLIENT": "1000000",
        "GATEWAY_MAX_IN_FLIGHT": "4096",
    }
    return Command([str(place.programs / "python"), "-m", "gateway"], settings)


def _vllm_router(place: Place) -> Command:
    return Command([str(place.programs / "vllm-router"), *_rust_options(place)])


def _sglang_router(place: Place) -> Command:
    return Command([str(place.programs / "python"), "-m", "sglang_router.launch_router", *_rust_options(place)])


def _smg(place: Place) -> Command:
    return Command([str(place.programs / "smg"), "launch", *_rust_options(place)])


def _rust_options(place: Place) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(place.port), "--worker-urls", place.engine]
    return [*where, "--policy", "round_robin", "--prometheus-port", str(place.spare_port)]


def _litellm(place: Place) -> Command:
    file = place.folder / "config.yaml"
    file.write_text(f"""\
model_list:
  - model_name: paced
    litellm_params:
      model: hosted_vllm/paced
      api_base: {place.engine}/v1
general_settings:
  master_key: {KEY}
litellm_settings:
  telemetry: false
""")
    options = ["--config", str(file), "--host", "127.0.0.1", "--port", str(place.port), "--num_workers", "1"]
    # The list of prices is the package's own, not a download.
    settings = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
    return Command([str(place.programs / "litellm"), *options], settings)


def _naive(place: Place) -> Command:
    arguments = [str(place.programs / "python"), "-m", "bench.peers.naive", place.engine, str(place.port)]
    return Command(arguments, {"PYTHONPATH": str(ROOT)})


SYSTEMS = (
    System("direct", "the engine itself", None),
    System("nginx", "one worker, keep-alive, no buffering, access log to a file", _nginx),
    System(
        "gateway",
        "ours, with all that it does: API keys, policy, limits, admission, usage, metrics, request log to a file",
        _gateway,
    ),
    System("vllm-router", "Rust, from the vLLM project; round robin", _vllm_router, "vllm-router"),
    System("sglang-router", "Rust, from the SGLang project; round robin", _sglang_router, "sglang-router"),
    System("smg", "Rust, Shepherd Model Gateway, which the one before became; round robin", _smg, "smg"),
    System("litellm", "LiteLLM's proxy, with its one obligatory key, without a database", _litellm, "litellm"),
    System("naive", "FastAPI and httpx, nothing else (naive.py)", _naive, "naive"),
)
# Rivals that a package's name does not bring.
ELSEWHERE = {
    "production-stack's router": "it is published as a container image and as source, not as a package; "
    "the package named vllm-router is the Rust router"
}


def base_environment(folder: Path) -> dict[str, str]:
    """Return what every system finds in its environment; nothing of the caller's own but the path."""
    return {"PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": str(folder), "TMPDIR": str(folder)}
