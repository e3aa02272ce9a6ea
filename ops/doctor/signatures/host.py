"""What the probes of this host found (ops/doctor/probes.py)."""

import re

from ops.doctor.signature import Signature, Source, Trouble, Weight

_HOST = (Source.HOST,)

SIGNATURES = (
    Signature(
        "port-taken",
        Trouble.START,
        _HOST,
        re.compile(r"port (?P<port>\d+) \((?P<name>[A-Z_]+)\) is taken by another program"),
        "Port {port} is held by another program, so the stack cannot listen on it.",
        "Stop that program (sudo ss -ltnp 'sport = :{port}' names it), or set {name} to a free port in .env.",
    ),
    Signature(
        "port-needs-root",
        Trouble.START,
        _HOST,
        re.compile(r"port (?P<port>\d+) \((?P<name>[A-Z_]+)\) needs root"),
        "Ports below 1024 need root.",
        "Set {name} to a port above 1023, or run with Docker.",
        Weight.HINT,
    ),
    Signature(
        "disk-low",
        Trouble.START,
        _HOST,
        re.compile(r"disk is low: (?P<free>\S+ GB) free"),
        "Only {free} are left: weights, images and compiled kernels need some.",
        "Free some: docker image prune, old folders of the weights' cache; or set ENGINE_CACHE_DIR to another disk.",
    ),
    Signature(
        "memory-low",
        Trouble.MEMORY,
        _HOST,
        re.compile(r"memory is low: (?P<free>\S+ GB) available"),
        "The host has {free} of memory left; the kernel will end programs.",
        "Stop what else runs here, or lower ENGINE_KV_CACHE_GB and ENGINE_MAX_MODEL_LEN.",
    ),
    Signature(
        "shared-memory-low",
        Trouble.MEMORY,
        _HOST,
        re.compile(r"shared memory is small: (?P<size>\S+ MB)"),
        "vLLM's processes talk through /dev/shm, which has {size} here and must have 160.",
        "Enlarge it: sudo mount -o remount,size=1g /dev/shm; in a container shm_size: 1gb.",
        Weight.HINT,
    ),
    Signature(
        "name-service",
        Trouble.CONNECTION,
        _HOST,
        re.compile(r"the name (?P<name>\S+) cannot be resolved"),
        "The weights' hub {name} has no address here: there is no network, or no name service.",
        "Check the network and /etc/resolv.conf; or set ENGINE_HUB_ENDPOINT to a mirror, ENGINE_HUB=modelscope, "
        "or ENGINE_MODEL to a folder or `demo`.",
        Weight.ECHO,
    ),
    Signature(
        "hub-unreachable",
        Trouble.CONNECTION,
        _HOST,
        re.compile(r"the hub (?P<url>\S+) cannot be reached"),
        "The weights' hub {url} does not answer from here.",
        "Set ENGINE_HUB_ENDPOINT to a mirror, ENGINE_HUB=modelscope, or HTTPS_PROXY; or ENGINE_MODEL to a folder.",
        Weight.ECHO,
    ),
    Signature(
        "clock-wrong",
        Trouble.CONNECTION,
        _HOST,
        re.compile(r"the clock is (?P<off>\d+ s) off"),
        "This host's clock is {off} off: certificates fail, and logs do not fit together.",
        "Set it: sudo timedatectl set-ntp true.",
    ),
    Signature(
        "two-ways-at-once",
        Trouble.START,
        _HOST,
        re.compile(r"two stacks run: (?P<ways>.+)"),
        "The stack runs twice, as {ways}; they fight over ports and memory.",
        "make down ends both; then make up.",
    ),
    Signature(
        "half-running",
        Trouble.START,
        (Source.STATES,),
        re.compile(r"half of the stack runs: (?P<up>.*) up, (?P<down>.*) down"),
        "Only {up} run; {down} do not.",
        "make up starts what is missing and leaves the rest alone; if it ends again, make doctor reads why.",
        Weight.ECHO,
    ),
    Signature(
        "nothing-runs",
        Trouble.START,
        (Source.STATES,),
        re.compile(r"nothing runs"),
        "The stack is not running.",
        "make up, or make demo for a try without a card.",
        Weight.ECHO,
    ),
    Signature(
        "kernel-killed-engine",
        Trouble.MEMORY,
        (Source.KERNEL,),
        re.compile(r"Out of memory: Killed process \d+ \((?P<name>(?:VLLM|vllm|lmcache)\S*)\)"),
        "The host's memory was full, and the kernel killed {name}.",
        "Lower ENGINE_KV_CACHE_GB or ENGINE_MAX_MODEL_LEN, or stop what else runs on this host.",
        Weight.HINT,
    ),
)
