"""What supervision asks of NVIDIA's driver, by the bindings of hardware.nvml: Xids, ECC counters, the card's state.

`nvml` is that module, initialized; handles are NVML's own. All raise nvml.NVMLError.
"""

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from launcher.hardware.nvml import bindings, session, told

# A driver whose card is lost may keep its callers waiting for ever, and the launcher has to end.
_STATES_SECONDS = 10.0


@dataclass(frozen=True)
class Event:
    """An Xid that the driver reported for a card, by the card's UUID."""

    uuid: str
    xid: int


@dataclass(frozen=True)
class CardMemory:
    """A card's memory at one moment, whoever holds it."""

    uuid: str
    name: str
    memory_used_bytes: int
    memory_total_bytes: int


def devices(nvml: Any) -> dict[str, Any]:
    """Handle of every card by its UUID, in the driver's order."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return {nvml.nvmlDeviceGetUUID(handle): handle for handle in handles}


def subscribe(nvml: Any, handles: Iterable[Any]) -> Any:
    """An event set for the faults of these cards; None if none of them tells any."""
    events, registered = nvml.nvmlEventSetCreate(), False
    for handle in handles:
        supported = told(nvml, partial(nvml.nvmlDeviceGetSupportedEventTypes, handle), 0)
        wanted = supported & (nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError)
        if wanted:
            nvml.nvmlDeviceRegisterEvents(handle, wanted, events)
            registered = True
    return events if registered else None


def wait(nvml: Any, events: Any, milliseconds: int) -> Event | None:
    """The next Xid; None if there was none in this time, or it was another kind of event."""
    try:
        event = nvml.nvmlEventSetWait_v2(events, milliseconds)
    except nvml.NVMLError_Timeout:
        return None
    if event.eventType != nvml.nvmlEventTypeXidCriticalError:
        return None
    return Event(nvml.nvmlDeviceGetUUID(event.device), int(event.eventData))


def memory(nvml: Any, uuid: str, handle: Any) -> CardMemory | None:
    """What the card has and holds now; None where it does not tell, or has no memory of its own."""
    try:
        now = nvml.nvmlDeviceGetMemoryInfo(handle)
        memory = CardMemory(uuid, nvml.nvmlDeviceGetName(handle), int(now.used), int(now.total))
    except nvml.NVMLError_GpuIsLost:
        raise
    except nvml.NVMLError:
        # It is only shown: no reason to end what watches for faults.
        return None
    return memory if memory.memory_total_bytes else None


def uncorrected_errors(nvml: Any, handle: Any) -> int | None:
    """Memory errors since the driver was loaded that ECC could not correct; None without ECC."""
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return told(nvml, lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since)), None)


def card_states(seconds: float = _STATES_SECONDS) -> dict[str, Any]:
    """State of every card by its UUID, within so many seconds; what is in the way of knowing it, if something is."""
    found: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=lambda: found.put(_states()), name="card states", daemon=True).start()
    try:
        return found.get(timeout=seconds)
    except queue.Empty:
        return {"error": f"the driver gave no answer in {seconds:g} s"}


def _states() -> dict[str, Any]:
    nvml = bindings()
    if nvml is None:
        return {"error": "there is no pynvml"}
    try:
        with session(nvml):
            return {uuid: _state(nvml, handle) for uuid, handle in devices(nvml).items()}
    except nvml.NVMLError as error:
        return {"error": str(error)}


def _state(nvml: Any, handle: Any) -> dict[str, Any]:
    """What the card tells of itself now, in bytes, degrees Celsius, watts and percent; the rest is absent."""
    asked: dict[str, Callable[[], Any]] = {
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "memory_total_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "uncorrected_ecc_errors": lambda: uncorrected_errors(nvml, handle),
    }
    found = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except nvml.NVMLError:
            # A card that is lost tells nothing; the rest of the last words still counts.
            continue
    return found
