"""The engines: which there are, which takes the next request, and HTTP with them.

Nothing outside this package knows the HTTP client.
"""

from gateway.upstreams.client import Answer, EngineClient
from gateway.upstreams.engine import STATES, Engine, Start, State
from gateway.upstreams.pool import Upstreams

__all__ = ["STATES", "Answer", "Engine", "EngineClient", "Start", "State", "Upstreams"]
