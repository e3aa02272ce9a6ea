"""The part of NVIDIA's management library that supervision needs, by ctypes: events, ECC counters, the card's state."""

import ctypes
from dataclasses import dataclass
from typing import Any, Self

_LIBRARY = "libnvidia-ml.so.1"
_TIMEOUT = 10
_XID_CRITICAL = 0x8
_DOUBLE_BIT_ECC = 0x2
_UNCORRECTED, _VOLATILE = 1, 0
_TEXT_BYTES = 96


class NvmlError(Exception):
    """A call failed; `code` is NVML's own, 0 where there is no library."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} ({code})")
        self.code = code


class _Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@dataclass(frozen=True)
class Event:
    """An Xid that the driver reported for a card, by the card's UUID."""

    uuid: str
    xid: int


class Nvml:
    """The driver's library, loaded and initialised while the context is open."""

    def __enter__(self) -> Self:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise NvmlError("loading", 0, str(error)) from error
        self._call("nvmlInit_v2")
        return self

    def __exit__(self, *_: object) -> None:
        self._library.nvmlShutdown()

    def devices(self) -> dict[str, Any]:
        """Handle of every card by its UUID."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = {}
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            found[self._uuid(handle)] = handle
        return found

    def subscribe(self, devices: dict[str, Any]) -> Any:
        """An event set for the Xids of these cards; raises NvmlError where the driver has none to tell."""
        events = ctypes.c_void_p()
        self._call("nvmlEventSetCreate", ctypes.byref(events))
        for handle in devices.values():
            supported = ctypes.c_ulonglong()
            self._call("nvmlDeviceGetSupportedEventTypes", handle, ctypes.byref(supported))
            wanted = ctypes.c_ulonglong(supported.value & (_XID_CRITICAL | _DOUBLE_BIT_ECC))
            self._call("nvmlDeviceRegisterEvents", handle, wanted, events)
        return events

    def wait(self, events: Any, milliseconds: int) -> Event | None:
        """The next Xid; None if there was none in this time, or it was another kind of event."""
        event = _Event()
        try:
            self._call("nvmlEventSetWait_v2", events, ctypes.byref(event), milliseconds)
        except NvmlError as error:
            if error.code == _TIMEOUT:
                return None
            raise
        if event.type != _XID_CRITICAL:
            return None
        return Event(self._uuid(ctypes.c_void_p(event.device)), int(event.data))

    def uncorrected_errors(self, device: Any) -> int | None:
        """Memory errors since the driver was loaded that ECC could not correct; None without ECC."""
        count = ctypes.c_ulonglong()
        try:
            self._call("nvmlDeviceGetTotalEccErrors", device, _UNCORRECTED, _VOLATILE, ctypes.byref(count))
        except NvmlError:
            return None
        return count.value

    def state(self, device: Any) -> dict[str, Any]:
        """What the card tells of itself now, in bytes, degrees Celsius, watts and percent; the rest is absent."""
        memory, utilization = _Memory(), _Utilization()
        temperature, power = ctypes.c_uint(), ctypes.c_uint()
        state: dict[str, Any] = {"uncorrected_ecc_errors": self.uncorrected_errors(device)}
        if self._tells("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory)):
            state |= {"memory_total_bytes": memory.total, "memory_used_bytes": memory.used}
        if self._tells("nvmlDeviceGetTemperature", device, 0, ctypes.byref(temperature)):
            state["temperature"] = temperature.value
        if self._tells("nvmlDeviceGetPowerUsage", device, ctypes.byref(power)):
            state["power_watts"] = power.value / 1000
        if self._tells("nvmlDeviceGetUtilizationRates", device, ctypes.byref(utilization)):
            state["utilization_percent"] = utilization.gpu
        name = ctypes.create_string_buffer(_TEXT_BYTES)
        if self._tells("nvmlDeviceGetName", device, name, _TEXT_BYTES):
            state["name"] = name.value.decode(errors="replace")
        return state

    def _uuid(self, device: Any) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call("nvmlDeviceGetUUID", device, text, _TEXT_BYTES)
        return text.value.decode(errors="replace")

    def _tells(self, name: str, *arguments: Any) -> bool:
        try:
            self._call(name, *arguments)
        except NvmlError:
            return False
        return True

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError as error:
            raise NvmlError(name, 0, "this driver does not have it") from error
        if code:
            text = self._library.nvmlErrorString
            text.restype = ctypes.c_char_p
            raise NvmlError(name, code, (text(code) or b"").decode(errors="replace"))


def card_states() -> dict[str, Any]:
    """State of every card by its UUID; what is in the way of knowing it instead, if something is."""
    try:
        with Nvml() as nvml:
            return {uuid: nvml.state(device) for uuid, device in nvml.devices().items()}
    except NvmlError as error:
        return {"error": str(error)}
