"""Lines over time as SVG, in the colors of Grafana's dark theme."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from dashboards.panels import Drawn
from dashboards.prometheus import INTERVAL
from dashboards.units import written
from trainmaster.metrics.dashboards import Panel

LINE_COLORS: Final = (
    "#73BF69", "#FADE2A", "#5794F2", "#FF9830", "#F2495C", "#B877D9", "#8AB8FF", "#37872D", "#E0B400", "#1F60C4",
    "#FA6400", "#C4162A", "#8F3BB8", "#96D98D", "#FFEE52", "#FFB357",
)  # fmt: skip
COLORS: Final[Mapping[str, str]] = {
    "green": "#73BF69", "yellow": "#FADE2A", "orange": "#FF9830", "red": "#F2495C", "blue": "#5794F2",
    "purple": "#B877D9", "text": "#CCCCDC",
}  # fmt: skip
_GRID: Final = "#2a2d33"
_TEXT: Final = "#9a9ba8"
_LEADER: Final = "#B877D9"

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 10, 8, 20
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS: Final = (10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)

Points = Sequence[tuple[float, float]]


def color_of(panel: Panel, index: int, line: Drawn) -> str:
    """Return the color of a line."""
    named = dict(panel.colors).get(line.name)
    return LINE_COLORS[index % len(LINE_COLORS)] if named is None else COLORS[named]


def threshold_color(panel: Panel, value: float) -> str:
    """Return the color that a value has by the steps of its panel."""
    name: str = panel.base
    for step, color in panel.steps:
        if value >= step:
            name = color
    return COLORS[name]


def svg(
    panel: Panel, lines: Sequence[Drawn], *, begin: float, end: float, leaders: Iterable[float], width: int, height: int
) -> str:
    """Return the diagram of a panel.

    Args:
        panel: What it is about.
        lines: Its lines.
        begin: The moment at its left edge, in seconds since the epoch.
        end: That at its right edge.
        leaders: Moments that get a mark.
        width: In pixels.
        height: In pixels.
    """
    drawn = _stacked(lines) if panel.is_stacked else [(line.points, None) for line in lines]
    highest = max((value for points, _ in drawn for _, value in points), default=0.0)
    ticks = _ticks(highest, panel.unit)
    top = ticks[-1]

    def x(at: float) -> float:
        return _LEFT + (at - begin) / (end - begin) * (width - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (height - _TOP - _BOTTOM)

    made = [f'<svg width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg">']
    for tick in ticks:
        made.append(_horizontal(y(tick), width, _GRID))
        made.append(_label(_LEFT - 6, y(tick) + 4, written(tick, panel.unit), "end"))
    for moment in _moments(begin, end):
        made.append(_vertical(x(moment), height, _GRID))
        made.append(_label(x(moment), height - 5, time.strftime("%H:%M", time.gmtime(moment)), "middle"))
    for index, (points, below) in reversed(list(enumerate(drawn))):
        color = color_of(panel, index, lines[index])
        for piece in _pieces(points):
            outline = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in piece)
            floor = [(at, below[at] if below else 0.0) for at, _ in reversed(piece)]
            ground = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in floor)
            opacity = 0.35 if panel.is_stacked else 0.07
            made.append(f'<polygon points="{outline} {ground}" fill="{color}" fill-opacity="{opacity}"/>')
            made.append(f'<polyline points="{outline}" fill="none" stroke="{color}" stroke-width="1.3"/>')
    for step, name in panel.steps:
        if 0 < step <= top:
            made.append(_horizontal(y(step), width, COLORS[name], dashed=True))
    made += [_vertical(x(moment), height, _LEADER, dashed=True) for moment in leaders]
    return "".join((*made, "</svg>"))


def sparkline(points: Points, *, color: str, width: int, height: int) -> str:
    """Return a small line without axes."""
    if len(points) < 2:
        return ""
    begin, end = points[0][0], points[-1][0]
    low, high = min(value for _, value in points), max(value for _, value in points)
    room = (high - low) or 1.0
    outline = " ".join(
        f"{(at - begin) / (end - begin) * width:.1f},{height - 2 - (value - low) / room * (height - 4):.1f}"
        for at, value in points
    )
    return (
        f'<svg width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg">'
        f'<polygon points="0,{height} {outline} {width},{height}" fill="{color}" fill-opacity="0.15"/>'
        f'<polyline points="{outline}" fill="none" stroke="{color}" stroke-width="1"/></svg>'
    )


def _stacked(lines: Sequence[Drawn]) -> list[tuple[Points, dict[float, float] | None]]:
    """Put lines upon each other; each comes with what is below it."""
    heights: dict[float, float] = {}
    made: list[tuple[Points, dict[float, float] | None]] = []
    for line in lines:
        below = {at: heights.get(at, 0.0) for at, _ in line.points}
        points = [(at, below[at] + value) for at, value in line.points]
        heights.update(points)
        made.append((points, below))
    return made


def _pieces(points: Points) -> list[list[tuple[float, float]]]:
    """Cut a line where there was no value."""
    made: list[list[tuple[float, float]]] = []
    for point in points:
        if not math.isfinite(point[1]):
            continue
        if made and point[0] - made[-1][-1][0] <= 1.5 * INTERVAL:
            made[-1].append(point)
        else:
            made.append([point])
    return made


def _ticks(highest: float, unit: str) -> list[float]:
    """Return round values from 0 to a little more than the highest."""
    if not math.isfinite(highest) or highest <= 0:
        return [0.0, 1.0]
    rough = highest / 3.5
    if unit in {"bytes", "Bps"}:
        step = 2.0 ** math.ceil(math.log2(rough))
    elif unit == "s" and rough > 5:
        step = next((each for each in _TIME_STEPS if each >= rough), 86400.0 * math.ceil(rough / 86400))
    else:
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each * power for each in _STEPS if each * power >= rough * 0.999)
    return [step * index for index in range(math.ceil(highest / step * 0.999) + 1)]


def _moments(begin: float, end: float) -> list[float]:
    """Return the full minutes."""
    first = math.ceil(begin / 60) * 60
    return [float(at) for at in range(first, int(end) + 1, 60)]


def _horizontal(y: float, width: int, color: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="6 4" stroke-opacity="0.7"' if dashed else ""
    return f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{color}"{dashes}/>'


def _vertical(x: float, height: int, color: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="3 3"' if dashed else ""
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - _BOTTOM}" stroke="{color}"{dashes}/>'


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11" fill="{_TEXT}">{escape(text)}</text>'
