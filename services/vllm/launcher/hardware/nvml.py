"""NVIDIA cards, by the driver's management library (NVML); nothing is started and no CUDA context is made."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from launcher.hardware.machine import Gpu, Host, Process

# Signs of a driver on the host: without them, a missing library means that there simply is no card.
_DRIVER_SIGNS = ("dev/nvidiactl", "dev/nvidia0", "proc/driver/nvidia/version", "dev/dxg")
# NVML writes CUDA 13.2 as 13020.
_MAJOR, _MINOR = 1000, 10

T = TypeVar("T")


def bindings() -> Any:
    """The module `pynvml`, or the copy that vLLM brings; None if neither is installed.

    vLLM's is loaded by its path: importing the package vllm would take ten seconds.
    """
    if importlib.util.find_spec("pynvml") is not None:
        return importlib.import_module("pynvml")
    vllm = importlib.util.find_spec("vllm")
    for folder in (vllm and vllm.submodule_search_locations) or ():
        path = Path(folder) / "third_party" / "pynvml.py"
        spec = importlib.util.spec_from_file_location("pynvml", path) if path.is_file() else None
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            # It looks itself up there while it is loaded.
            sys.modules["pynvml"] = module
            spec.loader.exec_module(module)
            return module
    return None


@contextmanager
def session(nvml: Any) -> Iterator[None]:
    """NVML initialized for a while. Raises nvml.NVMLError where there is no driver."""
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def told(nvml: Any, ask: Callable[[], T], otherwise: T) -> T:
    """The answer, or another value where this card or driver does not have it; a lost card stays an error."""
    try:
        return ask()
    except (
        nvml.NVMLError_NotSupported,
        nvml.NVMLError_NoPermission,
        nvml.NVMLError_FunctionNotFound,
        nvml.NVMLError_NotFound,
        nvml.NVMLError_InvalidArgument,
    ):
        return otherwise


def read(host: Host, root: Path = Path("/")) -> tuple[tuple[Gpu, ...], str]:
    """All cards, MIG slices in the place of a card that is divided; and why none could be read, if that is a fault."""
    nvml = bindings()
    if nvml is None:
        return (), ""
    try:
        with session(nvml):
            count = nvml.nvmlDeviceGetCount()
            return tuple(gpu for index in range(count) for gpu in _card(nvml, index, host)), ""
    except nvml.NVMLError_LibraryNotFound:
        if any((root / sign).exists() for sign in _DRIVER_SIGNS):
            return (), "the machine has an NVIDIA driver, but its library (libnvidia-ml.so.1) is not visible here"
        return (), ""
    except nvml.NVMLError as error:
        return (), f"the NVIDIA driver says: {error}"


def visible(gpus: tuple[Gpu, ...], selection: str | None) -> tuple[Gpu, ...]:
    """The cards that CUDA_VISIBLE_DEVICES leaves, in its order; like CUDA, stop at the first unknown one."""
    if selection is None:
        return gpus
    chosen: list[Gpu] = []
    for word in (part.strip() for part in selection.split(",")):
        match = [gpu for gpu in gpus if word and (gpu.uuid.startswith(word) or (word == str(gpu.index)))]
        if not match:
            break
        chosen.append(match[0])
    return tuple(chosen)


def _card(nvml: Any, index: int, host: Host) -> tuple[Gpu, ...]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    total, free = told(nvml, partial(_memory, nvml, handle), (0, 0))
    version = told(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2, 0)
    card = Gpu(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        compute_capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        memory_total_bytes=total or host.memory_total_bytes,
        memory_free_bytes=free if total else host.memory_available_bytes,
        driver_version=nvml.nvmlSystemGetDriverVersion(),
        cuda_version=(version // _MAJOR, version % _MAJOR // _MINOR) if version else None,
        processes=told(nvml, partial(_processes, nvml, handle), ()),
        ecc=told(nvml, lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]), None),
        unified_memory=not total,
    )
    return tuple(_slices(nvml, handle, card)) or (card,)


def _slices(nvml: Any, handle: Any, card: Gpu) -> Iterator[Gpu]:
    """The MIG slices of a card that is divided; a slice computes as its card does, in memory of its own."""
    if not told(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0):
        return
    for number in range(told(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)):
        piece = told(nvml, partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number), None)
        if piece is None:
            continue
        total, free = _memory(nvml, piece)
        yield replace(
            card,
            uuid=nvml.nvmlDeviceGetUUID(piece),
            name=f"{card.name} (MIG)",
            memory_total_bytes=total,
            memory_free_bytes=free,
            processes=told(nvml, partial(_processes, nvml, piece), ()),
            mig=True,
        )


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return int(memory.total), int(memory.free)


def _processes(nvml: Any, handle: Any) -> tuple[Process, ...]:
    rows = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return tuple(Process(int(row.pid), None if row.usedGpuMemory is None else int(row.usedGpuMemory)) for row in rows)
