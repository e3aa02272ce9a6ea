"""The launcher's exit codes (services/vllm/launcher/errors.py), and the words that it ends with."""

import re

from ops.doctor.signature import Signature, Source, Trouble, Weight


def _code(number: int) -> re.Pattern[str]:
    # As Docker's notes, supervisord's notes, and the launcher's own last words tell it.
    return re.compile(rf"(?:vllm(?:-\d+)?: .*exit code|exit status|^exit code) {number}(?:,|;|$)")


_AT = (Source.STATES, Source.LAST_WORDS)
_WORDS = "`make report` keeps its last words; the launcher's last line in the engine's log says which."

SIGNATURES = (
    Signature(
        "launcher-bad-setting",
        Trouble.START,
        _AT,
        _code(2),
        "The engine refused a setting (exit code 2): an ENGINE_* value that it does not know or that does not fit.",
        f"Correct it in .env. {_WORDS}",
        Weight.HINT,
    ),
    Signature(
        "launcher-weights-unreachable",
        Trouble.CONNECTION,
        _AT,
        _code(3),
        "The weights are not on this machine and could not be fetched (exit code 3).",
        "Check the network; or ENGINE_HUB_ENDPOINT (a mirror), ENGINE_HUB=modelscope, ENGINE_MODEL (a folder, `demo`).",
        Weight.HINT,
    ),
    Signature(
        "launcher-broken-checkpoint",
        Trouble.START,
        _AT,
        _code(4),
        "The weights are there, and vLLM could not serve them (exit code 4).",
        f"Fetch them again (delete the model's folder in the cache) or take a -PT revision. {_WORDS}",
        Weight.HINT,
    ),
    Signature(
        "launcher-unsupported-hardware",
        Trouble.HARDWARE,
        _AT,
        _code(5),
        "This card, CPU or vLLM build cannot run the engine (exit code 5).",
        f"Use a card of compute capability 7.5 or newer with driver 580, or the CPU way. {_WORDS}",
        Weight.HINT,
    ),
    Signature(
        "launcher-insufficient-resources",
        Trouble.MEMORY,
        _AT,
        _code(6),
        "Memory, disk or shared memory is too small for what the settings ask (exit code 6).",
        "Lower ENGINE_MAX_MODEL_LEN, ENGINE_KV_CACHE_GB or ENGINE_REPLICAS, raise ENGINE_VRAM_GB, or free some.",
        Weight.HINT,
    ),
    Signature(
        "launcher-port-taken",
        Trouble.START,
        _AT,
        _code(7),
        "Another program holds a port that the engine needs (exit code 7).",
        "Stop it, or set ENGINE_PORT and ENGINE_STATUS_PORT to free ones.",
        Weight.HINT,
    ),
    Signature(
        "launcher-engine-ended",
        Trouble.START,
        _AT,
        _code(8),
        "vLLM ended by itself (exit code 8).",
        f"It starts again by itself, later each time. {_WORDS}",
        Weight.ECHO,
    ),
    Signature(
        "launcher-engine-killed",
        Trouble.START,
        _AT,
        _code(9),
        "vLLM did not stop in time and was killed (exit code 9): open answers were cut.",
        "Nothing needs to be done. Raise ENGINE_SHUTDOWN_TIMEOUT_SECONDS if answers take longer than that.",
        Weight.HINT,
    ),
    Signature(
        "launcher-start-timeout",
        Trouble.START,
        _AT,
        _code(10),
        "vLLM was not healthy within ENGINE_START_TIMEOUT_SECONDS (exit code 10).",
        "Raise it if the engine was still working: slow disks, a first compilation. Else make report.",
        Weight.HINT,
    ),
    Signature(
        "launcher-engine-stalled",
        Trouble.HARDWARE,
        _AT,
        _code(11),
        "vLLM had work and computed nothing for ENGINE_STALL_SECONDS, so it was ended (exit code 11).",
        "It starts again by itself. If it comes back: look for Xids; raise ENGINE_STALL_SECONDS on a slow CPU.",
        Weight.HINT,
    ),
    Signature(
        "launcher-card-fault",
        Trouble.HARDWARE,
        _AT,
        _code(12),
        "The driver reported a fault of the card (exit code 12).",
        "The Xid in the launcher's last words says which; restart the machine if the engine does not come back.",
        Weight.HINT,
    ),
    Signature(
        "launcher-out-of-memory",
        Trouble.MEMORY,
        _AT,
        _code(13),
        "The engine ended because memory was full, the host's or the card's (exit code 13).",
        "Lower ENGINE_VRAM_GB, ENGINE_KV_CACHE_GB, ENGINE_MAX_SEQUENCES or ENGINE_MAX_MODEL_LEN.",
        Weight.HINT,
    ),
)
