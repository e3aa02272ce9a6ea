"""A loss curve as SVG, without a plotting library."""

import math
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 400, 70, 40, 20, 50


def write_loss_plot(path: Path, losses: list[tuple[int, float]], title: str) -> None:
    """Write `losses`, pairs of step and mean loss in nats a token, on a logarithmic scale."""
    high = math.ceil(math.log10(max(loss for _, loss in losses)))
    low = math.floor(math.log10(min(loss for _, loss in losses)))
    last_step = losses[-1][0]

    def x(step: float) -> float:
        return LEFT + step / last_step * (WIDTH - LEFT - RIGHT)

    def y(exponent: float) -> float:
        return TOP + (high - exponent) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="13">',
        f'<style>text{{font-family:sans-serif}}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="24" text-anchor="middle" font-size="15">{title}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>',
        f'<text transform="translate(18 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">nats a token</text>',
    ]
    parts += [
        f'<path d="M{LEFT} {y(exponent):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        f'<text x="{LEFT - 8}" y="{y(exponent) + 4:.1f}" text-anchor="end">{10.0**exponent:g}</text>'
        for exponent in range(low, high + 1)
    ]
    parts += [
        f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{step:.0f}</text>'
        for step in (last_step * fifth / 5 for fifth in range(6))
    ]
    points = " ".join(f"{x(step):.1f},{y(math.log10(loss)):.1f}" for step, loss in losses)
    parts.append(f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="1.5"/></svg>\n')
    path.write_text("\n".join(parts), encoding="utf-8")
