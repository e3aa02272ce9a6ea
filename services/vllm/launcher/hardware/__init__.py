"""What this machine has: NVIDIA cards by the driver, and the host's cores and memory within its cgroup."""

from collections.abc import Mapping

from launcher.hardware import host, nvml
from launcher.hardware.machine import GIB, MIB, Gpu, Hardware, Host, Process

__all__ = ["GIB", "MIB", "Gpu", "Hardware", "Host", "Process", "detect"]


def detect(environment: Mapping[str, str]) -> Hardware:
    """Ask the driver and the kernel; well under a second."""
    machine = host.read()
    gpus, problem = nvml.read(machine)
    return Hardware(nvml.visible(gpus, environment.get("CUDA_VISIBLE_DEVICES")), problem, machine)
