"""The command line and the environment of the vLLM server."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher import draining
from launcher.checkpoint import Checkpoint
from launcher.installation import Installation
from launcher.plan import Plan
from launcher.settings import Settings, foreign

# vLLM drains for this much less than the limit: the notice and tearing processes down take a few seconds.
_TEARDOWN_SECONDS = 5
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[1])
_QUIET_PATHS = "/health,/metrics,/ping"
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


@dataclass(frozen=True)
class Command:
    """What to execute, with the whole environment of the new process."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        return shlex.join(self.argv)


def build(settings: Settings, plan: Plan, checkpoint: Checkpoint, installation: Installation) -> tuple[str, ...]:
    """Arguments of the server, in a fixed order; ENGINE_EXTRA_ARGS come last."""
    argv = [
        *installation.start,
        str(checkpoint.folder),
        *("--served-model-name", settings.name),
        *("--host", settings.host),
        *("--port", str(settings.port)),
        *("--dtype", plan.dtype),
        *("--max-model-len", str(plan.context_tokens)),
        *("--kv-cache-memory-bytes", str(plan.kv_cache_bytes)),
    ]
    if plan.memory_utilization is not None:
        argv += ["--gpu-memory-utilization", str(plan.memory_utilization)]
    if plan.sequences is not None:
        argv += ["--max-num-seqs", str(plan.sequences)]
    if plan.eager:
        argv.append("--enforce-eager")
    if settings.quantization:
        argv += ["--quantization", settings.quantization]
    optional = (
        ("--disable-fastapi-docs",),
        ("--disable-access-log-for-endpoints", _QUIET_PATHS),
        ("--middleware", draining.MIDDLEWARE),
        ("--shutdown-timeout", str(max(0, settings.shutdown_timeout_seconds - _TEARDOWN_SECONDS))),
    )
    argv += [word for words in optional if installation.accepts(words[0]) for word in words]
    return (*argv, *settings.extra_args)


def server_environment(settings: Settings, plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: weights are on this machine by now, so it never asks a hub."""
    result = with_caches(settings, environment)
    # It would silently override the planned size; ENGINE_KV_CACHE_GB is the setting.
    result.pop("VLLM_CPU_KVCACHE_SPACE", None)
    return {
        "VLLM_NO_USAGE_STATS": "1",
        # The order of nvidia-smi, by which the card was chosen.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **result,
        **plan.environment,
        "HF_HUB_OFFLINE": "1",
        # Where vLLM finds the middleware.
        "PYTHONPATH": os.pathsep.join(path for path in (_PACKAGE_PARENT, result.get("PYTHONPATH", "")) if path),
    }


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
