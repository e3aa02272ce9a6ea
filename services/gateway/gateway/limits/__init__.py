"""How much one client may ask for: requests and tokens in any stretch of time, and streams at a time."""

from gateway.limits.ledger import Ledger
from gateway.limits.limits import Limits
from gateway.limits.memory import MemoryLedger

__all__ = ["Ledger", "Limits", "MemoryLedger"]
