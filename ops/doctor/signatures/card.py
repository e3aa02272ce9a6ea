"""The card: what nvidia-smi says, and what the driver wrote into the kernel's log (Xids)."""

import re

from ops.doctor.signature import Signature, Source, Trouble, Weight

_KERNEL = (Source.KERNEL, Source.ENGINE)
_REBOOT = "Restart the machine; if it comes back, check the card's seat, power and cooling, then have it replaced."


def _xid(numbers: str) -> re.Pattern[str]:
    # As the driver writes it, and as the launcher tells it.
    return re.compile(rf"Xid (?:\(PCI:(?P<card>[0-9a-fA-F:.]+)\): )?(?P<xid>{numbers})\b")


SIGNATURES = (
    Signature(
        "driver-not-running",
        Trouble.HARDWARE,
        (Source.CARD,),
        re.compile(r"NVIDIA-SMI has failed because it couldn.t communicate with the NVIDIA driver"),
        "There is a card, and its driver is not loaded: mostly after an update of the kernel.",
        "Restart the machine; if that does not help, install the driver again for the running kernel (dkms status).",
        Weight.HINT,
    ),
    Signature(
        "driver-mismatch",
        Trouble.HARDWARE,
        (Source.CARD, Source.ENGINE),
        re.compile(r"Failed to initialize NVML: Driver/library version mismatch"),
        "The NVIDIA driver was updated, and the kernel still runs the old one.",
        "Restart the machine.",
    ),
    Signature(
        "card-lost-in-container",
        Trouble.HARDWARE,
        (Source.CARD, Source.ENGINE),
        re.compile(r"Failed to initialize NVML: Unknown Error"),
        "The container has lost its card; `systemctl daemon-reload` does that with some Docker versions.",
        "make down && make up gives it back; to keep it, use Docker's cgroupfs driver or CDI.",
    ),
    Signature(
        "card-hot",
        Trouble.SPEED,
        (Source.CARD,),
        re.compile(r"card (?P<index>\d+) is slowed down by heat \((?P<heat>[^)]*)\)"),
        "Card {index} is too hot ({heat}) and runs slower.",
        "See to its cooling, or limit its power: sudo nvidia-smi -pl WATTS.",
    ),
    Signature(
        "card-memory-errors",
        Trouble.HARDWARE,
        (Source.CARD,),
        re.compile(r"card (?P<index>\d+) has (?P<errors>[1-9]\d*) uncorrected memory errors"),
        "The memory of card {index} has had {errors} errors since the driver was loaded that ECC could not correct.",
        "Restart the machine, which resets the card; if the number rises again, have the card replaced.",
    ),
    Signature(
        "card-row-remap",
        Trouble.HARDWARE,
        (Source.CARD,),
        re.compile(r"card (?P<index>\d+): a bad memory row (?P<what>waits for a reset|could not be replaced)"),
        "A bad memory row of card {index} {what}.",
        "Restart the machine, which resets the card; one that could not be replaced means a new card.",
    ),
    Signature(
        "card-used-by-others",
        Trouble.MEMORY,
        (Source.CARD,),
        re.compile(r"card (?P<index>\d+): other programs hold (?P<gb>\S+ GB)"),
        "Other programs hold {gb} of card {index}, which the engine cannot have.",
        "Stop them (nvidia-smi names them), or lower ENGINE_VRAM_GB to what is left.",
        Weight.HINT,
    ),
    Signature(
        "xid-fallen-off-the-bus",
        Trouble.HARDWARE,
        _KERNEL,
        re.compile(r"Xid (?:\(PCI:(?P<card>[0-9a-fA-F:.]+)\): )?79\b|NVRM: .*fallen off the bus"),
        "The card {card} has fallen off the bus (Xid 79): power, heat, its seat, or the card itself.",
        _REBOOT,
    ),
    Signature(
        "xid-memory",
        Trouble.HARDWARE,
        _KERNEL,
        _xid("48|63|64|92|94|95|140"),
        "The memory of the card {card} is failing (Xid {xid}).",
        "Restart the machine, which resets the card; if it comes back, have the card replaced.",
    ),
    Signature(
        "xid-nvlink",
        Trouble.HARDWARE,
        _KERNEL,
        _xid("74|136|14[4-9]|150"),
        "The NVLink of the card {card} has errors (Xid {xid}).",
        "Restart the machine; if it comes back, have the NVLink hardware checked. One card alone needs none of it.",
    ),
    Signature(
        "xid-system-processor",
        Trouble.HARDWARE,
        _KERNEL,
        _xid("6[12]|119|12[03]"),
        "A processor inside the card {card} does not answer the driver any more (Xid {xid}).",
        "Restart the machine; if it comes back, use another driver version (docs.nvidia.com/deploy/xid-errors).",
    ),
    Signature(
        "xid-program",
        Trouble.HARDWARE,
        _KERNEL,
        _xid("8|13|31|32|43|69|109"),
        "A program's work failed on the card {card} (Xid {xid}): mostly an error of the program or the driver.",
        "The engine starts again by itself. If it comes back, try another driver or vLLM version, and make report.",
        Weight.HINT,
    ),
)
