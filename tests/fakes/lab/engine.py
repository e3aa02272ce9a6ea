"""The fault engine: a fake vLLM that plays the fault a request names, and a switchboard that changes the whole engine.

A request names a fault by its `model`, or by a message that is nothing but the name, as one types it in a chat page.
"""

import asyncio
import json
import time
from collections import Counter, deque
from typing import Any

from tests.fakes.call import Call
from tests.fakes.engine import FakeEngine
from tests.fakes.events import EVENTS, MODEL
from tests.fakes.lab.faults import FAULTS, status_fault
from tests.fakes.lab.modes import MODES, Occupant
from tests.fakes.scripts import Script, answer, refusing
from tests.fakes.server import Server

LOGGED_CALLS = 200
FLOOD = "flood"
_STATUS = "status-"


async def flood(call: Call) -> None:
    """Send large events without end."""
    call.stream_head()
    while not call.disconnected.is_set():
        call.chunk(EVENTS[0].replace("你好".encode(), b"x" * 65_536))
        await asyncio.sleep(0.001)


class FaultEngine(FakeEngine):
    """An engine in one of the modes; in mode `sound` it plays what requests name."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(host, port)
        self.models = [{**self.models[0], "id": name} for name in (MODEL, *FAULTS, FLOOD)]
        self.listed = self.models
        self.asked: Counter[str] = Counter()
        self.mode = "sound"
        self.mode_since = time.time()
        self.every_script: Script | None = None
        self.occupant: Occupant | None = None
        # It runs for days: only the latest are kept.
        self.calls = deque(maxlen=LOGGED_CALLS)  # type: ignore[assignment]
        self.trials = deque(maxlen=LOGGED_CALLS)  # type: ignore[assignment]
        self.script = self._play

    async def enter(self, name: str) -> None:
        """Become sound, as after a repair, and then what the mode's name says."""
        await self._become_sound()
        self.mode, self.mode_since = name, time.time()
        await MODES[name].enter(self)

    def restart(self) -> None:
        """Look like a new process: the gateway asks for a proof again."""
        self.started_at += 1

    async def give_port_to(self, occupant: Occupant) -> None:
        """Stop, and let something else have the port; its port is set already."""
        await self.stop()
        await occupant.start()
        self.occupant = occupant

    async def _become_sound(self) -> None:
        if self.occupant is not None:
            await self.occupant.stop()
            self.occupant = None
        self.health_status, self.health_delay_seconds = 200, 0.0
        self.models, self.fixed_running, self.waiting, self.tokens_per_look = self.listed, None, 0.0, 0.0
        self.trial_script, self.every_script = answer, None
        if not self.server.listening:
            self.restart()
            await self.start()

    async def _play(self, call: Call) -> None:
        name = _named(call)
        self.asked[name] += 1
        await (self.every_script or _script_of(name))(call)


def _named(call: Call) -> str:
    """Return what a request names: its model, or a last message that is a fault's name."""
    try:
        request = call.json
        message = str(request["messages"][-1]["content"]).strip()
    except (ValueError, KeyError, IndexError, TypeError):
        return MODEL
    if message in FAULTS or message.startswith(_STATUS):
        return message
    return str(request.get("model") or MODEL)


def _script_of(name: str) -> Script:
    if name == MODEL:
        return answer
    if name == FLOOD:
        return flood
    if name in FAULTS:
        return FAULTS[name].script
    status = name.removeprefix(_STATUS)
    if name.startswith(_STATUS) and status.isdigit() and 200 <= int(status) <= 599:
        return status_fault(int(status)).script
    return refusing(404)


class Switchboard:
    """The control path, on a port of its own so that it answers whatever the engine does.

    `GET /control` tells the mode, all modes, and the latest requests; `POST /control {"mode": …}` changes the mode.
    """

    def __init__(self, engine: FaultEngine, host: str = "127.0.0.1", port: int = 0) -> None:
        self._engine = engine
        self.server = Server(self._handle, host, port)

    async def _handle(self, call: Call) -> None:
        if call.path != "/control":
            call.whole(404, b'{"error": "there is only /control"}')
            return
        if call.method == "POST":
            mode = _mode_in(call)
            if mode not in MODES:
                call.whole(400, json.dumps({"error": "no such mode", "modes": list(MODES)}).encode())
                return
            await self._engine.enter(mode)
        call.whole(200, json.dumps(self._report(), ensure_ascii=False).encode())

    def _report(self) -> dict[str, Any]:
        engine = self._engine
        return {
            "mode": engine.mode,
            "modes": {mode.name: mode.engine_does for mode in MODES.values()},
            "running": engine.running,
            "since": engine.mode_since,
            "last_trial_at": engine.trials[-1].received_at if engine.trials else None,
            "asked": dict(engine.asked),
            "calls": [_line(call) for call in engine.calls],
        }


def _mode_in(call: Call) -> str:
    try:
        return str(call.json["mode"])
    except (ValueError, KeyError, TypeError):
        return ""


def _line(call: Call) -> dict[str, Any]:
    return {
        "path": call.path,
        "names": _named(call),
        "headers": call.headers,
        "received_at": call.received_at,
        "disconnected_at": call.disconnected_at,
        "ended_at": call.ended_at,
    }
