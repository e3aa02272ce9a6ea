"""What may stand in ENGINE_EXTRA_ARGS: flags of the installed vLLM, and none that a setting owns."""

import difflib
import re
from collections.abc import Sequence
from itertools import pairwise

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
    "--data-parallel-size": "ENGINE_REPLICAS",
    "-dp": "ENGINE_REPLICAS",
    "--api-server-count": "ENGINE_API_SERVERS",
    "-asc": "ENGINE_API_SERVERS",
    "--enforce-eager": "ENGINE_EAGER=on",
    "--no-enforce-eager": "ENGINE_EAGER=off",
    "--quantization": "ENGINE_QUANTIZATION",
    "-q": "ENGINE_QUANTIZATION",
    "--revision": "ENGINE_REVISION",
    "--tokenizer-revision": "ENGINE_REVISION",
    "--download-dir": "ENGINE_CACHE_DIR",
    "--shutdown-timeout": "ENGINE_SHUTDOWN_TIMEOUT_SECONDS",
}
# Recipes that circulate and do not hold; docs/facts.md has the measurements.
_NONE = "vLLM has no such flag"
_MISLEADING = {
    "--num-experts-per-token": f"{_NONE}; the number of experts is the checkpoint's own",
    "--num-experts-per-tok": f"{_NONE}; the number of experts is the checkpoint's own",
    "--moe-expert-parallel-size": f"{_NONE}; --enable-expert-parallel does it, for MoE models only",
    "--expert-parallel-size": f"{_NONE}; --enable-expert-parallel does it, for MoE models only",
    "--enable-moe": "vLLM takes it as short for --enable-moe-shared-loras; MoE models need no flag",
    "--awq-ckpt": f"{_NONE}; point ENGINE_MODEL at an AWQ checkpoint, which needs no flag",
    "--gptq-ckpt": f"{_NONE}; point ENGINE_MODEL at a GPTQ checkpoint, which needs no flag",
    "--swap-space": f"{_NONE} any more; leave it out",
    "--use-v2-block-manager": f"{_NONE} any more; leave it out",
    "--num-scheduler-steps": f"{_NONE} any more; --async-scheduling is the default",
    "--device": f"{_NONE} any more; use ENGINE_DEVICE",
    "--api-key": "it would show in the process list; the gateway checks keys (GATEWAY_API_KEYS_FILE)",
    "--hf-token": "it would show in the process list; set HF_TOKEN",
    "--trust-remote-code": "ERNIE needs none with this transformers, and it would run the repository's code",
    "--disable-log-requests": "not logging requests is the default; leave it out",
    "--uds": "gateway and health check speak TCP; use ENGINE_HOST and ENGINE_PORT",
    "--ssl-keyfile": "gateway and health check speak plain HTTP; TLS is nginx's",
    "--ssl-certfile": "gateway and health check speak plain HTTP; TLS is nginx's",
    "--root-path": "the gateway asks for /v1; set the path in nginx",
    "--config": "what stands in the file would be unchecked; write its flags here",
    "--pipeline-parallel-size": "an engine sees the cards of ENGINE_TENSOR_PARALLEL alone; use that",
    "-pp": "an engine sees the cards of ENGINE_TENSOR_PARALLEL alone; use that",
    "--grpc": "gateway and health check speak HTTP, which it replaces; leave it out",
    "--headless": "a server without HTTP answers nobody; ENGINE_REPLICAS says how many engines there are",
}
# Flags that are sound and values that are not, as circulating recipes give them.
_MISLEADING_VALUES = {
    ("--load-format", "dummy"): "the weights would be random numbers",
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
    for flag, value in _pairs(words):
        if (flag, value) in _MISLEADING_VALUES:
            raise BadSetting(VARIABLE, f"{flag} {value}: {_MISLEADING_VALUES[flag, value]}")
    if words and not words[0].startswith("-"):
        raise BadSetting(VARIABLE, f"{words[0]!r} is not a flag; the model is set by ENGINE_MODEL")


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """Each flag with its value, whether they are one word or two."""
    joined = [tuple(word.split("=", 1)) for word in words if word.startswith("--") and "=" in word]
    return [(_canonical(flag), value) for flag, value in (*joined, *pairwise(words))]


def _canonical(word: str) -> str:
    """The flag without value or nested key, in vLLM's dashed spelling."""
    name = re.split(r"[=.]", word, maxsplit=1)[0]
    return name.replace("_", "-") if name.startswith("--") else name
