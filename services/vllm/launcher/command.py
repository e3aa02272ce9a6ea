"""Command line and environment of each engine, a vLLM server."""

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher import draining, request_log
from launcher.checkpoint import Checkpoint
from launcher.errors import BadSetting
from launcher.installation import Installation
from launcher.planning.plan import Plan
from launcher.settings import Settings, foreign

# vLLM drains for this much less than the limit: the notice and tearing processes down take a few seconds.
_TEARDOWN_SECONDS = 5
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[1])
# Experts are moved every 3,000 steps by the load of the last 1,000 (vLLM's own numbers); once in that time the log says
# how even it is, which costs an exchange between the cards.
_EPLB = json.dumps({"log_balancedness": True, "log_balancedness_interval": 1000})
# Everything that vLLM, torch, triton and flashinfer write outside /tmp, below one folder.
_CACHES = {
    "HF_HOME": "huggingface",
    "MODELSCOPE_CACHE": "modelscope",
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm/config",
    "TORCHINDUCTOR_CACHE_DIR": "torch",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
    "NUMBA_CACHE_DIR": "numba",
    "XDG_CACHE_HOME": "xdg",
    "XDG_CONFIG_HOME": "xdg/config",
}
_TRACES = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_SERVICE_NAME": "ernie-engine"}


@dataclass(frozen=True)
class Command:
    """What to execute, with the whole environment of the new process."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        return shlex.join(self.argv)


def build(
    settings: Settings, plan: Plan, checkpoint: Checkpoint, installation: Installation, index: int = 0
) -> tuple[str, ...]:
    """Arguments of one engine's server, in a fixed order; ENGINE_EXTRA_ARGS come last.

    Raises BadSetting if the installed vLLM cannot have several HTTP processes.
    """
    argv = [
        *installation.start,
        str(checkpoint.folder),
        *("--served-model-name", settings.name),
        *("--host", settings.host),
        *("--port", str(settings.engine_port(index))),
        *("--dtype", plan.dtype),
        *("--max-model-len", str(plan.context_tokens)),
        *("--kv-cache-memory-bytes", str(plan.kv_cache_bytes)),
        *_chosen(settings, plan),
        *(
            ("--otlp-traces-endpoint", f"{settings.otlp_endpoint.rstrip('/')}/v1/traces")
            if settings.otlp_endpoint
            else ()
        ),
        *_http(settings, plan, installation),
    ]
    return (*argv, *settings.extra_args)


def _chosen(settings: Settings, plan: Plan) -> list[str]:
    """What the plan sets only where it differs from vLLM's own choice."""
    pairs = (
        ("--gpu-memory-utilization", plan.memory_utilization),
        ("--max-num-seqs", plan.sequences),
        ("--max-num-batched-tokens", plan.batched_tokens),
        ("--kv-cache-dtype", plan.kv_cache_dtype if plan.kv_cache_dtype != "auto" else None),
        ("--attention-backend", plan.attention_backend),
        ("--quantization", settings.quantization or None),
        ("--tensor-parallel-size", plan.tensor_parallel if plan.tensor_parallel > 1 else None),
        ("--eplb-config", _EPLB if plan.expert_balancing else None),
    )
    switches = (
        ("--enforce-eager", plan.eager),
        ("--enable-expert-parallel", plan.expert_parallel),
        ("--enable-eplb", plan.expert_balancing),
    )
    words = [word for flag, value in pairs if value is not None for word in (flag, str(value))]
    return words + [flag for flag, wanted in switches if wanted]


def _http(settings: Settings, plan: Plan, installation: Installation) -> list[str]:
    """Flags of the HTTP server; the rust one ends at its start when it gets the python one's own."""
    if plan.api_servers > 1 and installation.start[-1] != "serve":
        raise BadSetting(
            "ENGINE_API_SERVERS", "the installed vLLM is started as a module, which has one; leave it empty"
        )
    python: tuple[tuple[str, ...], ...] = (
        ("--disable-fastapi-docs",),
        # Its lines have no ids; the second middleware writes better ones, and of the first's refusals too.
        ("--disable-uvicorn-access-log",),
        ("--middleware", draining.MIDDLEWARE),
        ("--middleware", request_log.MIDDLEWARE),
        ("--api-server-count", str(plan.api_servers)) if plan.api_servers > 1 else (),
    )
    both = (("--shutdown-timeout", str(max(0, settings.shutdown_timeout_seconds - _TEARDOWN_SECONDS))),)
    wanted = both if plan.front_end == "rust" else (*python, *both)
    return [word for words in wanted if words and installation.accepts(words[0]) for word in words]


def server_environment(
    settings: Settings, plan: Plan, environment: Mapping[str, str], index: int = 0
) -> dict[str, str]:
    """One engine's environment: weights are on this machine by now, so it never asks a hub."""
    result = with_caches(settings, environment)
    # Each would silently override what is planned: ENGINE_KV_CACHE_GB and ENGINE_FRONT_END are the settings.
    for name in ("VLLM_CPU_KVCACHE_SPACE", "VLLM_USE_RUST_FRONTEND"):
        result.pop(name, None)
    return {
        "VLLM_NO_USAGE_STATS": "1",
        **(_TRACES if settings.otlp_endpoint else {}),
        **result,
        **_cards(plan, index),
        **plan.environment,
        "HF_HUB_OFFLINE": "1",
        # Where vLLM finds the middleware.
        "PYTHONPATH": os.pathsep.join(path for path in (_PACKAGE_PARENT, result.get("PYTHONPATH", "")) if path),
    }


def _cards(plan: Plan, index: int) -> dict[str, str]:
    """The cards that an engine sees, in the driver's order, by which they were chosen."""
    if not plan.cards:
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(plan.cards[index])}


def with_caches(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without ENGINE_* whose caches lie below ENGINE_CACHE_DIR, if that is set.

    A cache that the user placed elsewhere by its own variable stays there; HOME does not, because a container
    with an arbitrary uid gets `/`.
    """
    result = foreign(environment)
    if settings.cache_dir:
        root = Path(settings.cache_dir)
        defaults = {name: str(root / folder) for name, folder in _CACHES.items()}
        # torch asks for the user's name, which an arbitrary uid does not have.
        result = {"USER": "engine", "LOGNAME": "engine", **defaults, **result, "HOME": str(root)}
    return result
