"""NVIDIA's Xid numbers: what the driver means by them, and what helps.

From NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors). What is not listed is told by its number and does not end
the engine: most unlisted numbers are unused or informational.
"""

from dataclasses import dataclass

_RESTART = "restarting the engine is enough"
_RESET = "reset the card (nvidia-smi --gpu-reset) or restart the machine"
_REBOOT = "restart the machine; if it comes back, check the card's seat and power, then have it replaced"
_REPLACE = "reset the card; if it comes back, run NVIDIA's field diagnostics and have the card replaced"
_LINK = "restart the machine; if it comes back, have the NVLink hardware checked"
_PROGRAM = "an error of the program rather than the card: keep the log, and try another vLLM or driver"


@dataclass(frozen=True)
class Xid:
    """`fatal`: the card, its memory or its driver cannot be relied on, so the engine is ended at once."""

    meaning: str
    cure: str
    fatal: bool


XIDS = {
    8: Xid("the card stopped processing", _PROGRAM, fatal=False),
    13: Xid("an exception in a kernel", _PROGRAM, fatal=False),
    31: Xid("a kernel touched memory that is not its own", _PROGRAM, fatal=False),
    32: Xid("a damaged stream of commands to the card", _PROGRAM, fatal=False),
    43: Xid("the card stopped a program's work", _PROGRAM, fatal=False),
    45: Xid("a program's work was cleared away, mostly because it ended", _PROGRAM, fatal=False),
    48: Xid("a double-bit memory error that ECC could not correct", _REPLACE, fatal=True),
    61: Xid("the card's microcontroller met a breakpoint", _RESET, fatal=True),
    62: Xid("the card's microcontroller halted", _RESET, fatal=True),
    63: Xid("a bad memory row was noted and will be replaced at the next reset", _RESET, fatal=False),
    64: Xid("a bad memory row could not be replaced", _REPLACE, fatal=True),
    68: Xid("an exception in the video decoder", _PROGRAM, fatal=False),
    69: Xid("a command that the card does not know", _PROGRAM, fatal=False),
    74: Xid("an NVLink error", _LINK, fatal=True),
    79: Xid("the card has fallen off the bus", _REBOOT, fatal=True),
    92: Xid("many corrected memory errors", "watch it: a rising number announces a failing card", fatal=False),
    94: Xid("an uncorrectable memory error that hit this program only", _RESTART, fatal=True),
    95: Xid("an uncorrectable memory error that may have hit anything", _RESET, fatal=True),
    109: Xid("a change between programs on the card took too long", _PROGRAM, fatal=False),
    110: Xid("a security fault of the card", _RESET, fatal=True),
    119: Xid("the card's system processor does not answer the driver", _RESET, fatal=True),
    120: Xid("an error in the card's system processor", _RESET, fatal=True),
    121: Xid("a corrected error between CPU and card", "watch it", fatal=False),
    123: Xid("the card's power management does not answer the driver", _RESET, fatal=True),
    136: Xid("training an NVLink failed", _LINK, fatal=True),
    140: Xid("an uncorrectable memory error that the card could not recover from", _RESET, fatal=True),
    143: Xid("the card could not be initialised", _RESET, fatal=True),
    154: Xid("the card needs a recovery action", "`nvidia-smi -q` names it under GPU Recovery Action", fatal=False),
}


def meaning(number: int) -> Xid:
    """What is known of a number; an unknown one is not fatal."""
    return XIDS.get(number, Xid("a driver error", "look the number up in NVIDIA's Xid catalogue", fatal=False))
