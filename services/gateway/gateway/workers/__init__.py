"""Several processes that serve as one: a watcher that knows the engines, workers that serve, and what they share."""

from gateway.workers.cores import usable_cores
from gateway.workers.mirror import Mirror
from gateway.workers.processes import Processes
from gateway.workers.publisher import Publisher
from gateway.workers.shared import Shared
from gateway.workers.supervisor import Supervisor
from gateway.workers.truth import Truth

__all__ = ["Mirror", "Processes", "Publisher", "Shared", "Supervisor", "Truth", "usable_cores"]
