"""Watches the cards: a fault that the driver reports ends the engines at once instead of by their wrong answers.

Their memory is told to whoever shows it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from launcher.errors import CardFault
from launcher.hardware.nvml import bindings, session
from launcher.supervision import driver, xids
from launcher.supervision.driver import CardMemory, Event

_WAIT_MILLISECONDS = 1_000
_KEPT = 20

log = logging.getLogger(__name__)


class CardWatch:
    """A thread that waits for what the driver says of these cards, until it is closed.

    They are named as in CUDA_VISIBLE_DEVICES. If none is found by its name (a part of a card has one of its own), all
    are watched. `on_memory` hears about once a second what each holds, and at the end that nothing is known.
    """

    def __init__(
        self,
        on_fault: Callable[[CardFault], None],
        on_memory: Callable[[Sequence[CardMemory]], None],
        names: Collection[str],
    ) -> None:
        self._on_fault = on_fault
        self._on_memory = on_memory
        self._names = names
        self._closed = threading.Event()
        self._noted: deque[str] = deque(maxlen=_KEPT)
        self._thread = threading.Thread(target=self._run, name="card", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, within about a second."""
        self._closed.set()
        self._thread.join(2 * _WAIT_MILLISECONDS / 1000)

    def noted(self) -> list[str]:
        """What the driver said about programs' own errors so far, oldest first."""
        return list(self._noted)

    def _run(self) -> None:
        nvml = bindings()
        if nvml is None:
            log.warning("the card is not watched: there is no pynvml")
            return
        try:
            with session(nvml):
                self._watch(nvml)
        except nvml.NVMLError_GpuIsLost as error:
            self._on_fault(CardFault(f"the driver has lost the card ({error}); {xids.meaning(79).cure}"))
        except nvml.NVMLError as error:
            log.warning("the card is not watched: %s", error)
        finally:
            self._on_memory(())

    def _watch(self, nvml: Any) -> None:
        devices = choose(driver.devices(nvml), self._names)
        errors = {uuid: driver.uncorrected_errors(nvml, handle) for uuid, handle in devices.items()}
        events = driver.subscribe(nvml, devices.values())
        if events is None:
            log.warning("the driver reports no events of this card: only its memory errors are watched")
        while not self._closed.is_set():
            told = (driver.memory(nvml, uuid, handle) for uuid, handle in devices.items())
            self._on_memory([memory for memory in told if memory is not None])
            event = self._wait(nvml, events)
            fault = self._judge(event) if event is not None and event.uuid in devices else None
            for uuid, handle in devices.items():
                before, now = errors[uuid], driver.uncorrected_errors(nvml, handle)
                if fault is None and before is not None and now is not None and now > before:
                    fault = CardFault(
                        f"{now - before} memory errors of card {uuid} could not be corrected; {xids.meaning(48).cure}"
                    )
            if fault is not None:
                self._on_fault(fault)
                return

    def _wait(self, nvml: Any, events: Any) -> Event | None:
        if events is not None:
            return driver.wait(nvml, events, _WAIT_MILLISECONDS)
        self._closed.wait(_WAIT_MILLISECONDS / 1000)
        return None

    def _judge(self, event: Event) -> CardFault | None:
        known = xids.meaning(event.xid)
        text = f"Xid {event.xid} on card {event.uuid}: {known.meaning}; {known.cure}"
        if known.fatal:
            return CardFault(text)
        self._noted.append(text)
        log.warning("%s", text)
        return None


def choose(devices: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The cards with these names, which are places in the order of the driver, or how their UUIDs begin."""
    chosen = {
        uuid: handle
        for place, (uuid, handle) in enumerate(devices.items())
        if any(name == str(place) or (name and uuid.startswith(name)) for name in names)
    }
    return chosen or devices
