"""The engines: which there are, which takes the next request, and HTTP with them.

Nothing outside this package knows the HTTP client.
"""

from gateway.upstreams.client import Answer, EngineClient
from gateway.upstreams.engine import STATES, Engine, Load, OwnWork, Start, State
from gateway.upstreams.launchers import Launcher
from gateway.upstreams.pool import Upstreams
from gateway.upstreams.status import STATUS_BYTES, BadStatus, Stage, read_status

__all__ = [
    "STATES",
    "STATUS_BYTES",
    "Answer",
    "BadStatus",
    "Engine",
    "EngineClient",
    "Launcher",
    "Load",
    "OwnWork",
    "Stage",
    "Start",
    "State",
    "Upstreams",
    "read_status",
]
