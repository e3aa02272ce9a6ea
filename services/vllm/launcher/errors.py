"""Why the launcher ends, and with which exit code.

* LauncherError
  + BadSetting 2             a setting is unknown, malformed, or does not suit the checkpoint
  + WeightsUnreachable 3     not in the cache, and the hub does not answer
  + BrokenCheckpoint 4       the files are there, but vLLM could not serve them
  + UnsupportedHardware 5    this card, CPU or vLLM build cannot run the engine
  + InsufficientResources 6  not enough memory, disk or shared memory
  + PortTaken 7              another process listens on a port that the engine service needs
  + EngineEnded 8            vLLM ended by itself
  + EngineKilled 9           vLLM outlived the shutdown limit and was killed
  + StartTimeout 10          vLLM was not healthy within the start limit
  + EngineStalled 11         vLLM took work and computed nothing for ENGINE_STALL_SECONDS
  + CardFault 12             the driver reported a fault of the card (an Xid, or memory errors)
  + OutOfMemory 13           vLLM ended because the host's or the card's memory was full

0 means done, or stopped on request; 1 is an unhealthy `health` probe or an error of the launcher itself.
"""

# ruff: noqa: N818  (each name says what happened)

from typing import ClassVar


class LauncherError(Exception):
    """An end that the launcher can explain in one line: what happened, and what to do."""

    exit_code: ClassVar[int] = 1


class BadSetting(LauncherError):
    """A setting names something that does not exist or cannot be."""

    exit_code = 2

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable}: {problem}")
        self.variable = variable


class WeightsUnreachable(LauncherError):
    """The weights are not on this machine and cannot be fetched."""

    exit_code = 3


class BrokenCheckpoint(LauncherError):
    """A file of the checkpoint is absent, damaged, or of a kind that vLLM does not read."""

    exit_code = 4

    def __init__(self, fault: str, cure: str) -> None:
        super().__init__(f"{fault}. {cure}")
        self.fault = fault
        self.cure = cure


class UnsupportedHardware(LauncherError):
    """The engine cannot run on this card, this CPU, or with this build of vLLM."""

    exit_code = 5


class InsufficientResources(LauncherError):
    """Memory, disk or shared memory is too small for the plan."""

    exit_code = 6


class PortTaken(LauncherError):
    """An address that the engine service should listen on is in use."""

    exit_code = 7


class EngineEnded(LauncherError):
    """The engine ended although nobody asked it to."""

    exit_code = 8


class EngineKilled(LauncherError):
    """The engine did not end within the shutdown limit."""

    exit_code = 9


class StartTimeout(LauncherError):
    """The engine did not answer its health check within the start limit."""

    exit_code = 10


class EngineStalled(LauncherError):
    """The engine accepted work and computed nothing."""

    exit_code = 11


class CardFault(LauncherError):
    """The driver reported a fault of the card, its memory or itself."""

    exit_code = 12


class OutOfMemory(LauncherError):
    """The engine ended because the host's or the card's memory was full."""

    exit_code = 13
