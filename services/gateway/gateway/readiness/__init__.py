"""Whether engines really answer: proved before the first request, watched after it."""

from gateway.readiness.readiness import Readiness
from gateway.readiness.starts import StartTimes
from gateway.readiness.watch import WatchTimes

__all__ = ["Readiness", "StartTimes", "WatchTimes"]
