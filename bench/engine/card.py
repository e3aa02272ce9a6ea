"""The GPU as NVML sees it: nothing where there is none."""

import contextlib
import statistics
import threading
import time
from typing import Any

try:
    import pynvml
except ImportError:
    pynvml = None

_PERIOD_SECONDS = 0.05


class Card:
    """The first GPU, sampled in a thread of its own."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._samples: list[tuple[float, int, float, int]] = []
        if pynvml is not None:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlInit()
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
                threading.Thread(target=self._sample, daemon=True).start()

    def describe(self) -> dict[str, Any] | None:
        """What it is, without anything that names this one."""
        if self._handle is None:
            return None
        name = pynvml.nvmlDeviceGetName(self._handle)
        return {
            "name": name if isinstance(name, str) else name.decode(),
            "memory_mib": pynvml.nvmlDeviceGetMemoryInfo(self._handle).total // 2**20,
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        }

    def used_bytes(self) -> int | None:
        """Memory in use, by whomever."""
        return None if self._handle is None else int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def used_by(self, pids: set[int]) -> int | None:
        """Memory that these processes have, where the driver says."""
        if self._handle is None:
            return None
        with contextlib.suppress(pynvml.NVMLError):
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
            used = [process.usedGpuMemory for process in processes if process.pid in pids]
            return sum(used) if used and all(used) else None
        return None

    def between(self, begin: float, end: float) -> dict[str, float] | None:
        """Means within a window of time.monotonic."""
        samples = [sample for sample in self._samples if begin <= sample[0] < end]
        if not samples:
            return None
        _, busy, watts, clock = zip(*samples, strict=True)
        return {
            "busy_percent": round(statistics.mean(busy), 1),
            "watts": round(statistics.mean(watts), 1),
            "sm_mhz": round(statistics.mean(clock)),
        }

    def _sample(self) -> None:
        while True:
            with contextlib.suppress(pynvml.NVMLError):
                busy = pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
                watts = pynvml.nvmlDeviceGetPowerUsage(self._handle) / 1000
                clock = pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM)
                self._samples.append((time.monotonic(), busy, watts, clock))
            time.sleep(_PERIOD_SECONDS)
