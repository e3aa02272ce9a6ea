"""The NVIDIA cards of this host, by nvidia-smi."""

import shutil
import subprocess
from dataclasses import dataclass

ASK_SECONDS = 20
_FIELDS = (
    "index",
    "name",
    "driver_version",
    "memory.used",
    "memory.total",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "clocks_event_reasons.sw_thermal_slowdown",
    "clocks_event_reasons.hw_thermal_slowdown",
    "ecc.errors.uncorrected.volatile.total",
    "remapped_rows.pending",
    "remapped_rows.failure",
)
_UNIT = 1024 * 1024


@dataclass(frozen=True)
class Card:
    """One card now; what it does not tell is None."""

    index: int
    name: str
    driver: str
    used_bytes: int
    total_bytes: int
    use_percent: float | None
    heat_celsius: float | None
    power_watts: float | None
    is_slowed_by_heat: bool
    uncorrected_errors: int | None
    row_waits: bool
    row_failed: bool


@dataclass(frozen=True)
class CardProgram:
    """What one program holds of a card's memory."""

    pid: int
    name: str
    bytes: int


def read_cards() -> tuple[list[Card], str]:
    """Return the cards, and what nvidia-smi said where it failed; neither on a host without it."""
    text, complaint = _ask("--query-gpu=" + ",".join(_FIELDS))
    return parse_cards(text), complaint


def parse_cards(text: str) -> list[Card]:
    """Return the cards in what nvidia-smi printed; a line of another form is left out."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [_card(row) for row in rows if len(row) == len(_FIELDS) and row[0].isdigit()]


def read_programs() -> list[CardProgram]:
    """Return the programs that compute on a card."""
    rows = [line.split(",") for line in _ask("--query-compute-apps=pid,name,used_memory")[0].splitlines()]
    return [
        CardProgram(int(row[0]), row[1].strip(), int((_number(row[2]) or 0) * _UNIT))
        for row in rows
        if len(row) == 3 and row[0].strip().isdigit()  # noqa: PLR2004 - the three columns asked for
    ]


def _ask(query: str) -> tuple[str, str]:
    if shutil.which("nvidia-smi") is None:
        return "", ""
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"nvidia-smi gave no answer in {ASK_SECONDS} s"
    if done.returncode != 0:
        return "", " ".join((done.stdout + done.stderr).split())
    return done.stdout, ""


def _card(row: list[str]) -> Card:
    return Card(
        index=int(row[0]),
        name=row[1],
        driver=row[2],
        used_bytes=int((_number(row[3]) or 0) * _UNIT),
        total_bytes=int((_number(row[4]) or 0) * _UNIT),
        use_percent=_number(row[5]),
        heat_celsius=_number(row[6]),
        power_watts=_number(row[7]),
        is_slowed_by_heat="Active" in row[8:10],
        uncorrected_errors=None if (errors := _number(row[10])) is None else int(errors),
        row_waits=row[11] == "Yes",
        row_failed=row[12] == "Yes",
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
