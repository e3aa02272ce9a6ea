"""What may stand in ENGINE_EXTRA_ARGS: flags of the installed vLLM, and none that a setting owns."""

import difflib
import re
from collections.abc import Sequence

from launcher.errors import BadSetting

VARIABLE = "ENGINE_EXTRA_ARGS"

# The plan sets these, so a second value would be a contradiction.
_OWNED = {
    "--model": "ENGINE_MODEL",
    "--served-model-name": "ENGINE_SERVED_NAME",
    "--host": "ENGINE_HOST",
    "--port": "ENGINE_PORT",
    "--dtype": "ENGINE_DTYPE",
    "--max-model-len": "ENGINE_MAX_MODEL_LEN",
    "--kv-cache-memory-bytes": "ENGINE_KV_CACHE_GB",
    "--gpu-memory-utilization": "ENGINE_VRAM_GB",
    "--max-num-seqs": "ENGINE_MAX_SEQUENCES",
    "--kv-cache-dtype": "ENGINE_KV_CACHE_DTYPE",
    "--tensor-parallel-size": "ENGINE_TENSOR_PARALLEL",
    "-tp": "ENGINE_TENSOR_PARALLEL",
    "--api-server-count": "ENGINE_API_SERVERS",
    "--enforce-eager": "ENGINE_EAGER=on",
    "--no-enforce-eager": "ENGINE_EAGER=off",
    "--quantization": "ENGINE_QUANTIZATION",
    "-q": "ENGINE_QUANTIZATION",
    "--revision": "ENGINE_REVISION",
    "--shutdown-timeout": "ENGINE_SHUTDOWN_TIMEOUT_SECONDS",
}
# Recipes that circulate and do not hold; docs/facts.md has the measurements.
_MISLEADING = {
    "--num-experts-per-token": "vLLM has no such flag; the number of experts is the checkpoint's own",
    "--moe-expert-parallel-size": "vLLM has no such flag; --enable-expert-parallel does it, for MoE models only",
    "--enable-moe": "vLLM takes it as short for --enable-moe-shared-loras; MoE models need no flag",
    "--awq-ckpt": "vLLM has no such flag; point ENGINE_MODEL at an AWQ checkpoint",
    "--swap-space": "vLLM has no such flag any more; leave it out",
    "--api-key": "it would show in the process list; the gateway checks keys (GATEWAY_API_KEYS_FILE)",
    "--hf-token": "it would show in the process list; set HF_TOKEN",
    "--trust-remote-code": "ERNIE needs none with this transformers, and it would run the repository's code",
    "--disable-log-requests": "not logging requests is the default; leave it out",
    "--uds": "gateway and health check speak TCP; use ENGINE_HOST and ENGINE_PORT",
}
_MOE_ONLY = frozenset({"--enable-expert-parallel", "-ep", "--enable-eplb", "--eplb-config"})
_NUMBER = re.compile(r"-\.?\d.*")


def check(words: Sequence[str], known: frozenset[str], *, is_moe: bool) -> None:
    """Refuse, with the right way, what the server would reject, misread, or what a setting already says.

    `known` is what the installed vLLM defines; empty leaves the names unchecked. Raises BadSetting.
    """
    for flag in (_canonical(word) for word in words if word.startswith("-") and not _NUMBER.fullmatch(word)):
        if flag in _OWNED:
            raise BadSetting(VARIABLE, f"{flag} belongs to a setting of its own: use {_OWNED[flag]}")
        if flag in _MISLEADING:
            raise BadSetting(VARIABLE, f"{flag}: {_MISLEADING[flag]}")
        if flag in _MOE_ONLY and not is_moe:
            raise BadSetting(VARIABLE, f"{flag} is for mixture-of-experts models and this one is dense; leave it out")
        if known and flag not in known and not flag.startswith("-O"):
            close = difflib.get_close_matches(flag, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "see `vllm serve --help=all`"
            raise BadSetting(VARIABLE, f"the installed vLLM has no {flag} (abbreviations are refused); {hint}")
    if words and not words[0].startswith("-"):
        raise BadSetting(VARIABLE, f"{words[0]!r} is not a flag; the model is set by ENGINE_MODEL")


def _canonical(word: str) -> str:
    """The flag without value or nested key, in vLLM's dashed spelling."""
    name = re.split(r"[=.]", word, maxsplit=1)[0]
    return name.replace("_", "-") if name.startswith("--") else name
