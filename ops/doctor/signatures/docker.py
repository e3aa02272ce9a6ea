"""What the Docker engine and compose say."""

import re

from ops.doctor.signature import Signature, Source, Trouble, Weight

_SAID = (Source.DOCKER, Source.STATES)

SIGNATURES = (
    Signature(
        "docker-down",
        Trouble.START,
        (Source.DOCKER,),
        re.compile(r"Cannot connect to the Docker daemon|FileNotFoundError\(2,|ConnectionRefusedError\(111,"),
        "No Docker engine answers on this host.",
        "Start it (sudo systemctl start docker), or run without it: STACK_WAY=native.",
        Weight.HINT,
    ),
    Signature(
        "docker-permission",
        Trouble.START,
        (Source.DOCKER,),
        re.compile(
            r"permission denied while trying to connect to the Docker daemon|PermissionError\(13,", re.IGNORECASE
        ),
        "This user may not talk to the Docker engine.",
        "Add the user to the group: sudo usermod -aG docker $USER, log in again; or STACK_WAY=native.",
        Weight.HINT,
    ),
    Signature(
        "docker-no-nvidia-runtime",
        Trouble.HARDWARE,
        _SAID,
        re.compile(r'could not select device driver "(?:nvidia)?" with capabilities: \[\[.*gpu.*\]\]'),
        "Docker cannot hand a card to a container: the NVIDIA Container Toolkit is not set up.",
        "Install it, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker. "
        "Without a card `make up` takes docker-compose.cpu.yml by itself.",
    ),
    Signature(
        "docker-driver-mismatch",
        Trouble.HARDWARE,
        _SAID,
        re.compile(r"nvidia-container-cli: initialization error: nvml error: driver/library version mismatch"),
        "The NVIDIA driver was updated, and the kernel still runs the old one.",
        "Restart the machine.",
    ),
    Signature(
        "docker-port-taken",
        Trouble.START,
        _SAID,
        re.compile(
            r"Bind for \S+:(?P<port>\d+) failed: port is already allocated"
            r"|failed to bind host port .*:(?P<other>\d+).*address already in use"
        ),
        "Port {port}{other} of this host belongs to another container or program.",
        "Stop that one (docker ps shows who publishes the port), or set NGINX_HTTP_PORT in .env, then make up.",
    ),
    Signature(
        "docker-disk-full",
        Trouble.START,
        _SAID,
        re.compile(r"no space left on device", re.IGNORECASE),
        "The disk of Docker's folder is full.",
        "See docker system df; docker image prune and docker builder prune free what nothing uses.",
    ),
    Signature(
        "docker-registry-unreachable",
        Trouble.CONNECTION,
        (Source.DOCKER,),
        re.compile(
            r"registry-1\.docker\.io.*(?:Client\.Timeout exceeded|context deadline exceeded|no such host|i/o timeout)"
        ),
        "Docker Hub cannot be reached from here.",
        "Set a mirror or a proxy for the Docker engine (registry-mirrors in /etc/docker/daemon.json), or point "
        "STACK_ENGINE_BASE_IMAGE at a registry that you reach, or STACK_WAY=native.",
        Weight.HINT,
    ),
    Signature(
        "docker-pull-limit",
        Trouble.CONNECTION,
        (Source.DOCKER,),
        re.compile(r"toomanyrequests: You have reached your (?:unauthenticated )?pull rate limit"),
        "Docker Hub lets this address pull no more images for now.",
        "docker login, or wait (the limit counts six hours), or use a mirror.",
        Weight.HINT,
    ),
    Signature(
        "docker-no-address-pool",
        Trouble.START,
        (Source.DOCKER,),
        re.compile(r"could not find an available, non-overlapping IPv4 address pool"),
        "Docker has no addresses left for another network; a VPN often takes them.",
        "docker network prune, or stop the VPN while the stack starts, or set default-address-pools in daemon.json.",
        Weight.HINT,
    ),
    Signature(
        "container-memory-limit",
        Trouble.MEMORY,
        (Source.STATES,),
        re.compile(r"-(?P<service>vllm|gateway|chat-ui|nginx)-\d+: .*killed for want of memory"),
        "The container of {service} reached its memory limit, and the kernel killed it.",
        "For vllm raise STACK_ENGINE_MEMORY or lower ENGINE_KV_CACHE_GB; for the others report it: they should not.",
    ),
    Signature(
        "dependency-unhealthy",
        Trouble.START,
        (Source.DOCKER,),
        re.compile(r"dependency failed to start: container (?P<name>\S+) is unhealthy"),
        "Compose waited for {name}, which did not become healthy in time.",
        "Look at that service's log; while weights are still downloading raise STACK_ENGINE_START_PERIOD.",
        Weight.ECHO,
    ),
)
