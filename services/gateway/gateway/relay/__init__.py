"""Passing one request to an engine and its answer back, whatever happens on the way."""

from gateway.relay.interruptions import InFlight
from gateway.relay.patience import Patience
from gateway.relay.relay import Relay, RelayTimes
from gateway.relay.stream import StreamTimes

__all__ = ["InFlight", "Patience", "Relay", "RelayTimes", "StreamTimes"]
