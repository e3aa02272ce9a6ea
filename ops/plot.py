"""Small pictures as SVG, for reports that load nothing from anywhere."""

import html
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 30, 28
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed")


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
            + _text(x + step * 0.3, HEIGHT - 10, label)
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


def lines(title: str, unit: str, xs: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """Return a line for each series over the same places; x is in seconds."""
    top = max((max(ys, default=0.0) for ys in series.values()), default=0.0) or 1.0
    longest = max(xs, default=0.0) or 1.0
    parts = []
    for index, (name, ys) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        points = " ".join(
            f"{_LEFT + _inner_width() * x / longest:.1f},{_y(y, 0.0, top):.1f}" for x, y in zip(xs, ys, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{_LEFT + 110 * index}" y="{HEIGHT - 8}" fill="{colour}">{html.escape(name)}</text>')
    return _frame(title, unit, 0.0, top, parts)


def _inner_width() -> float:
    return WIDTH - _LEFT - _RIGHT


def _y(value: float, bottom: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - bottom) / (top - bottom)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{html.escape(text)}</text>'


def _frame(title: str, unit: str, bottom: float, top: float, parts: Sequence[str]) -> str:
    ticks = [bottom + (top - bottom) * share for share in (0.0, 0.5, 1.0)]
    marks = [
        f'<text x="{_LEFT - 6}" y="{_y(tick, bottom, top) + 4:.1f}" text-anchor="end">{tick:.3g}</text>'
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
