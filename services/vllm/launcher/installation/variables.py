"""What may stand in the environment for vLLM: variables that it knows, and none that would break the stack."""

import re
from collections.abc import Mapping

from launcher.errors import BadSetting

_PREFIX = "VLLM_"
# Recipes that circulate; vLLM ignores these, or the launcher sets them itself.
_MISLEADING = {
    "VLLM_ATTENTION_BACKEND": "vLLM has no such variable any more; --attention-backend in ENGINE_EXTRA_ARGS does it",
    "VLLM_USE_V1": "vLLM has no such variable any more: there is one engine; leave it out",
    "VLLM_CPU_KVCACHE_SPACE": "the launcher sets the size itself; use ENGINE_KV_CACHE_GB",
    "VLLM_USE_MODELSCOPE": "the launcher fetches the weights itself; use ENGINE_HUB=modelscope",
    "VLLM_MODEL": "vLLM has no such variable; use ENGINE_MODEL",
    "VLLM_HOST": "vLLM has no such variable; use ENGINE_HOST",
}
# Kubernetes tells every container of every service: a service named vllm gives VLLM_PORT_8000_TCP and the like.
_SERVICE = re.compile(r"VLLM_(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP)).*")


def check(environment: Mapping[str, str], known: frozenset[str]) -> list[str]:
    """Warnings, a line each. `known` is what the installed vLLM reads; empty leaves the names unchecked.

    Raises BadSetting for one with which no request would be answered, or vLLM would not start.
    """
    given = {name: text for name, text in environment.items() if name.startswith(_PREFIX) and text}
    if "VLLM_API_KEY" in given:
        raise BadSetting(
            "VLLM_API_KEY", "vLLM would refuse the gateway; leave it out, the gateway checks GATEWAY_API_KEYS_FILE"
        )
    if "://" in given.get("VLLM_PORT", ""):
        raise BadSetting(
            "VLLM_PORT",
            "vLLM takes it for a port, but it is Kubernetes' word for a service named vllm; set"
            " enableServiceLinks: false in the pod, or rename the service",
        )
    warnings = [f"{name}: {_MISLEADING[name]}" for name in sorted(given) if name in _MISLEADING]
    strange = sorted(name for name in given if name not in known | set(_MISLEADING) and not _SERVICE.fullmatch(name))
    if known and strange:
        warnings.append(f"the installed vLLM knows no {', '.join(strange)}; see ENGINE_* for the launcher's settings")
    return warnings
