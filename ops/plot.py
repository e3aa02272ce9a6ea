"""Small pictures as SVG, for reports that load nothing from anywhere."""

import html
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 30, 44
_HOURS_FROM_SECONDS = 7200
_NAME_WIDTH = 95
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2")


def bars(title: str, unit: str, values: Mapping[str, float]) -> str:
    """Return a bar for each value, with its number on it."""
    top = max(values.values(), default=0.0) or 1.0
    step = _inner_width() / max(len(values), 1)
    parts = []
    for index, (label, value) in enumerate(values.items()):
        x, y = _LEFT + step * index + step * 0.2, _y(value, 0.0, top)
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.6:.1f}" height="{HEIGHT - _BOTTOM - y:.1f}"'
            f' fill="{_COLOURS[0]}"/>'
            + _text(x + step * 0.3, y - 4, f"{value:.4g}")
            + _text(x + step * 0.3, HEIGHT - _BOTTOM + 16, label)
        )
    return _frame(title, unit, 0.0, top, parts)


def dots(title: str, unit: str, values: Sequence[float], limit: float | None = None) -> str:
    """Return a dot for each value in its order, and a line at the limit."""
    top = max([*values, limit or 0.0], default=0.0) or 1.0
    step = _inner_width() / max(len(values), 1)
    parts = [
        f'<circle cx="{_LEFT + step * (index + 0.5):.1f}" cy="{_y(value, 0.0, top):.1f}" r="3" fill="{_COLOURS[0]}"/>'
        for index, value in enumerate(values)
    ]
    if limit is not None:
        y = _y(limit, 0.0, top)
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_COLOURS[1]}"'
            ' stroke-dasharray="6 4"/>' + _text(WIDTH - _RIGHT - 30, y - 4, f"limit {limit:g}")
        )
    return _frame(title, unit, 0.0, top, parts)


def lines(title: str, unit: str, xs: Sequence[float], series: Mapping[str, Sequence[float | None]]) -> str:
    """Return a line for each series over the same places, broken where a value is None; x is in seconds."""
    top = max((y for ys in series.values() for y in ys if y is not None), default=0.0) or 1.0
    longest = max(xs, default=0.0) or 1.0
    parts = [
        _text(_LEFT + _inner_width() * share, HEIGHT - _BOTTOM + 14, _time(longest * share, longest))
        for share in (0.0, 0.5, 1.0)
    ]
    for index, (name, ys) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        for run in _runs(xs, ys):
            points = " ".join(f"{_LEFT + _inner_width() * x / longest:.1f},{_y(y, 0.0, top):.1f}" for x, y in run)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(
            f'<text x="{_LEFT + _NAME_WIDTH * index}" y="{HEIGHT - 8}" fill="{colour}">{html.escape(name)}</text>'
        )
    return _frame(title, unit, 0.0, top, parts)


def _runs(xs: Sequence[float], ys: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """Return the stretches without a gap."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]


def _time(seconds: float, longest: float) -> str:
    """Return a moment since the start in a unit that suits the whole."""
    return f"{seconds / 3600:.3g} h" if longest >= _HOURS_FROM_SECONDS else f"{seconds / 60:.3g} min"


def _inner_width() -> float:
    return WIDTH - _LEFT - _RIGHT


def _y(value: float, bottom: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - bottom) / (top - bottom)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{html.escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits say enough


def _frame(title: str, unit: str, bottom: float, top: float, parts: Sequence[str]) -> str:
    ticks = [bottom + (top - bottom) * share for share in (0.0, 0.5, 1.0)]
    marks = [
        f'<text x="{_LEFT - 6}" y="{_y(tick, bottom, top) + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
        for tick in ticks
    ]
    axis = (
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{HEIGHT - _BOTTOM}" y2="{HEIGHT - _BOTTOM}"'
        ' stroke="currentColor" opacity="0.4"/>'
    )
    head = f'<text x="8" y="16" font-weight="600">{html.escape(title)}, {html.escape(unit)}</text>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}" fill="currentColor"'
        f' font-family="sans-serif" font-size="12">{head}{axis}{"".join(marks)}{"".join(parts)}</svg>'
    )
