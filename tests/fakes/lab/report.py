"""The scorecard as a person reads it: in a terminal, or as a table of a document."""

from collections.abc import AsyncIterator

from tests.fakes.lab.scorecard import Row

_WIDTHS = (25, 7, 80, 5)


async def print_rows(rows: AsyncIterator[Row], *, markdown: bool = False) -> int:
    """Print each row as it comes, then the counts; return the exit code: 1 if any failed, or none came."""
    print(_head(markdown=markdown), flush=True)
    total, failed, seconds = 0, 0, 0.0
    async for row in rows:
        total, failed, seconds = total + 1, failed + bool(row.complaints), seconds + row.seconds
        print(_markdown(row) if markdown else _line(row), flush=True)
    print(f"\n{total} faults, {total - failed} ok, {failed} FAILED", flush=True)
    return 1 if failed or not total else 0


def _head(*, markdown: bool) -> str:
    if markdown:
        return "| fault | what happens | asked for | what came of it | s |\n|---|---|---|---|---|"
    return _columns("fault", "mode", "what came of it", "s") + "outcome"


def _columns(*cells: str) -> str:
    return "".join(f"{cell:<{width}} " for cell, width in zip(cells, _WIDTHS, strict=True))


def _line(row: Row) -> str:
    line = _columns(row.fault, row.mode, row.saw, f"{row.seconds:.2f}") + ("FAILED" if row.complaints else "ok")
    return "\n".join([line, *(f"    {complaint}" for complaint in row.complaints)])


def _markdown(row: Row) -> str:
    saw = "; ".join([row.saw, *(f"**{complaint}**" for complaint in row.complaints)])
    return f"| `{row.fault}` | {row.what} | {row.mode} | {saw} | {row.seconds:.2f} |"
