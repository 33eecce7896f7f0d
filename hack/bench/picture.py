"""The picture of growth: what a TrainJob takes, over how many there are, as SVG for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bench.growth import Growth

LINES: Final[Mapping[str, tuple[str, str]]] = {
    "create.cpu": ("creation", "#5794F2"),
    "life.cpu": ("whole life", "#FF9830"),
    "restart.cpu": ("restart", "#73BF69"),
}
"""Figures in milliseconds of CPU for a TrainJob, with what they are called and their colors."""

_WIDTH, _HEIGHT = 720, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 110, 32, 44
_GRAY: Final = "#8a8b98"
_STEPS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def picture(growth: Growth) -> str:
    """Draw the CPU of a TrainJob with few and with many of them; the axis of their number is logarithmic."""
    sizes = sorted(growth.sizes)
    highest = max(growth.sizes[jobs].get(name, 0.0) for jobs in sizes for name in LINES)
    step = next((each for each in _STEPS if highest / each <= 8), _STEPS[-1])
    top = step * math.ceil(highest / step)

    def x(jobs: float) -> float:
        span = math.log(sizes[-1] / sizes[0]) or 1.0
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(jobs / sizes[0]) / span

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top

    parts = [_text(_LEFT, 18, "CPU of the manager for one TrainJob, ms", "start")]
    for index in range(round(top / step) + 1):
        value = index * step
        parts.append(_line([(_LEFT, y(value)), (_WIDTH - _RIGHT, y(value))], _GRAY, width=0.4))
        parts.append(_text(_LEFT - 8, y(value) + 4, f"{value:g}", "end"))
    parts += [_text(x(jobs), _HEIGHT - _BOTTOM + 20, f"{jobs:,}", "middle") for jobs in sizes]
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, "TrainJobs at once", "middle"))
    for name, (title, color) in LINES.items():
        points = [(x(jobs), y(growth.sizes[jobs][name])) for jobs in sizes if name in growth.sizes[jobs]]
        if points:
            parts += _curve(points, title, color)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="13">\n{body}\n</svg>\n'
    )


def _curve(points: Sequence[tuple[float, float]], title: str, color: str) -> Iterator[str]:
    yield _line(points, color, width=2)
    for across, down in points:
        yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.5" fill="{color}"/>'
    across, down = points[-1]
    yield _text(across + 10, down + 4, title, "start", color)


def _line(points: Sequence[tuple[float, float]], color: str, *, width: float) -> str:
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>'


def _text(across: float, down: float, text: str, anchor: str, color: str = _GRAY) -> str:
    return f'<text x="{across:.1f}" y="{down:.1f}" fill="{color}" text-anchor="{anchor}">{text}</text>'
