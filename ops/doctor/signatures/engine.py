"""vLLM's own log: what it says when it does not start, and when it fails at work."""

import re

from ops.doctor.signature import Signature, Source, Trouble, Weight

_ENGINE = (Source.ENGINE, Source.LAST_WORDS)
_FETCH_AGAIN = "Fetch it again: delete the model's folder in the cache, then make up; or set ENGINE_REVISION."

SIGNATURES = (
    Signature(
        "engine-card-memory",
        Trouble.MEMORY,
        _ENGINE,
        re.compile(r"OutOfMemoryError: CUDA out of memory|CUDA error: out of memory"),
        "The card's memory was full.",
        "Lower ENGINE_VRAM_GB, ENGINE_KV_CACHE_GB or ENGINE_MAX_SEQUENCES, or stop what else uses the card.",
    ),
    Signature(
        "engine-card-too-full",
        Trouble.MEMORY,
        _ENGINE,
        re.compile(r"Free memory on device .*\((?P<free>[\d.]+)/(?P<all>[\d.]+) GiB\) on startup.* less than"),
        "Only {free} of {all} GiB of the card were free when the engine started, less than it was told to take.",
        "Stop what else uses the card (nvidia-smi names it), or set ENGINE_VRAM_GB to what is free.",
    ),
    Signature(
        "engine-context-too-long",
        Trouble.MEMORY,
        _ENGINE,
        re.compile(
            r"max seq len \((?P<length>\d+)\).*larger than the available KV cache memory \((?P<memory>[\d.]+ GiB)\)"
        ),
        "A context of {length} tokens does not fit into the KV cache of {memory}.",
        "Lower ENGINE_MAX_MODEL_LEN, or raise ENGINE_KV_CACHE_GB or ENGINE_VRAM_GB.",
    ),
    Signature(
        "engine-no-cache-memory",
        Trouble.MEMORY,
        _ENGINE,
        re.compile(r"No available memory for the cache blocks"),
        "After weights and working memory nothing is left for the KV cache.",
        "Raise ENGINE_VRAM_GB, stop what else uses the card, or lower ENGINE_MAX_SEQUENCES.",
    ),
    Signature(
        "engine-unknown-flag",
        Trouble.START,
        _ENGINE,
        re.compile(r"error: unrecognized arguments: (?P<flags>.+)"),
        "vLLM does not know {flags}: many recipes name flags that never existed or are gone.",
        "Take it out of ENGINE_EXTRA_ARGS; docs/facts.md says what replaced it.",
    ),
    Signature(
        "engine-unknown-architecture",
        Trouble.START,
        _ENGINE,
        re.compile(r"Model architectures \['(?P<name>\w+)'\] are not supported for now"),
        "vLLM does not know the architecture {name} of this checkpoint.",
        "For Ernie4_5_ForCausalLM fetch the present -PT revision; else this vLLM is too old for the model.",
    ),
    Signature(
        "engine-no-bfloat16",
        Trouble.HARDWARE,
        _ENGINE,
        re.compile(
            r"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0.*Your (?P<card>.+?) GPU"
        ),
        "{card} cannot compute in bfloat16.",
        "Leave ENGINE_DTYPE at auto, which takes float16 there.",
    ),
    Signature(
        "engine-card-too-old",
        Trouble.HARDWARE,
        _ENGINE,
        re.compile(r"CUDA error: no kernel image is available for execution on the device"),
        "This vLLM has no code for this card: it is too old, or newer than the image.",
        "Compute capability 7.5 is the least (T4, RTX 20); for a newer card take a newer STACK_ENGINE_BASE_IMAGE.",
    ),
    Signature(
        "engine-driver-too-old",
        Trouble.HARDWARE,
        _ENGINE,
        re.compile(r"The NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)"),
        "The NVIDIA driver knows CUDA {version} and the image needs CUDA 13.",
        "Update the driver to 580 or newer; on a data center card VLLM_ENABLE_CUDA_COMPATIBILITY=1 may do.",
    ),
    Signature(
        "engine-illegal-access",
        Trouble.HARDWARE,
        _ENGINE,
        re.compile(r"CUDA error: an illegal memory access was encountered"),
        "A kernel touched memory that is not its own: an error of vLLM or the driver, seldom of the card.",
        "It starts again by itself. If it comes back, try ENGINE_EAGER=on, another driver or vLLM; and make report.",
    ),
    Signature(
        "engine-nccl",
        Trouble.HARDWARE,
        _ENGINE,
        re.compile(r"NCCL error: unhandled (?:system|cuda) error|NCCL error in: .*unhandled"),
        "Several cards could not talk to each other (NCCL), mostly for want of shared memory.",
        "Keep shm_size at 1gb or more; or ENGINE_TENSOR_PARALLEL=1, which is enough for this model.",
    ),
    Signature(
        "engine-shared-memory",
        Trouble.HARDWARE,
        _ENGINE,
        re.compile(
            r"Error while creating shared memory segment /dev/shm|posix_fallocate failed : No space left on device"
            r"|the shared memory \(/dev/shm\) has"
        ),
        "The shared memory /dev/shm is too small.",
        "In a container set shm_size: 1gb; on the host sudo mount -o remount,size=1g /dev/shm.",
    ),
    Signature(
        "engine-hung",
        Trouble.SPEED,
        (Source.ENGINE,),
        re.compile(r"No available shared memory broadcast block found in \d+ seconds"),
        "A process of vLLM waits for another that does not move: it compiles, or it hangs.",
        "Give a first start some minutes. Later the launcher ends it after ENGINE_STALL_SECONDS and starts it again.",
        Weight.HINT,
    ),
    Signature(
        "engine-no-compiler",
        Trouble.START,
        _ENGINE,
        re.compile(r"Failed to find C compiler"),
        "Triton compiles small kernels at the start and found no C compiler.",
        "Use this project's image, or install g++ where the engine runs (ops/setup.sh native does).",
    ),
    Signature(
        "engine-cache-not-writable",
        Trouble.START,
        _ENGINE,
        re.compile(r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^']*cache[^']*)'"),
        "The engine's user may not write {path}.",
        "Set ENGINE_CACHE_DIR to a folder that it owns; a volume of Docker's: docker volume rm, then make up.",
    ),
    Signature(
        "engine-hub-unreachable",
        Trouble.CONNECTION,
        _ENGINE,
        re.compile(r"LocalEntryNotFoundError|is not whole on this machine and \S+ cannot be asked"),
        "The weights are not on this machine, and their hub did not answer.",
        "Check the network, or set ENGINE_HUB_ENDPOINT (a mirror), ENGINE_HUB=modelscope, or ENGINE_MODEL (a folder).",
        Weight.HINT,
    ),
    Signature(
        "engine-hub-token",
        Trouble.CONNECTION,
        _ENGINE,
        re.compile(r"GatedRepoError|Cannot access gated repo|HF_TOKEN: .* needs a token"),
        "The hub gives this model only to accounts that were granted it.",
        "Ask for access on the model's page and set HF_TOKEN in .env.",
        Weight.HINT,
    ),
    Signature(
        "engine-weights-damaged",
        Trouble.START,
        _ENGINE,
        re.compile(
            r"SafetensorError: Error while deserializing header|\.safetensors (?:is truncated|has a damaged header)"
        ),
        "A file of the weights is damaged or was not fetched to its end.",
        _FETCH_AGAIN,
    ),
    Signature(
        "engine-no-chat-template",
        Trouble.ANSWERS,
        _ENGINE,
        re.compile(r"default chat template is no longer allowed, so you must provide a chat template"),
        "The checkpoint has no chat template, so every chat request fails.",
        "Fetch tokenizer_config.json or chat_template.jinja of the same revision.",
    ),
    Signature(
        "engine-port-in-use",
        Trouble.START,
        _ENGINE,
        re.compile(r"(?P<name>ENGINE_\w+=\d+) on \S+ is taken by another process|OSError: \[Errno 98\]"),
        "Another program holds the engine's port {name}.",
        "Stop it, or set ENGINE_PORT and ENGINE_STATUS_PORT to free ones.",
    ),
    Signature(
        "engine-no-avx2",
        Trouble.HARDWARE,
        _ENGINE,
        re.compile(r"by SIGILL\b|this CPU has no AVX2"),
        "This CPU lacks instructions that vLLM uses.",
        "vLLM's CPU build needs AVX2, better AVX-512: use a CPU of 2013 or later, or a GPU.",
    ),
    Signature(
        "engine-bad-setting",
        Trouble.START,
        _ENGINE,
        re.compile(r"launcher: (?P<what>(?:ENGINE_|HF_|VLLM_)\w+: .+)"),
        "The engine refuses a setting: {what}",
        "Correct it in .env, then make up.",
        Weight.HINT,
    ),
    Signature(
        "engine-checkpoint",
        Trouble.START,
        _ENGINE,
        re.compile(
            r"launcher: (?P<what>.*(?:which vLLM does not know|Git LFS pointer|holds Paddle weights|is not UTF-8"
            r"|is not JSON|has no tokenizer|has no weights|has no config\.json|no answer would ever end|lacks? ).*)"
        ),
        "vLLM cannot serve these weights: {what}",
        _FETCH_AGAIN,
        Weight.HINT,
    ),
    Signature(
        "engine-too-little-memory",
        Trouble.MEMORY,
        _ENGINE,
        re.compile(
            r"launcher: (?P<what>.*(?:of memory \(|is planned; raise|the budget is|ENGINE_VRAM_GB allows|GiB free).*)"
        ),
        "The settings ask for more memory than there is: {what}",
        "Lower ENGINE_MAX_MODEL_LEN, ENGINE_KV_CACHE_GB or ENGINE_REPLICAS, or free some.",
        Weight.HINT,
    ),
    Signature(
        "engine-core-failed",
        Trouble.START,
        _ENGINE,
        re.compile(r"Engine core initialization failed|EngineCore encountered a fatal error"),
        "vLLM's engine process failed; its reason stands above that line in the log.",
        "make report keeps the log. The engine starts again by itself.",
        Weight.ECHO,
    ),
)
