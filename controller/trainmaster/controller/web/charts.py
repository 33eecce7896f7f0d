"""What a job reported over time, as drawings: SVG in the page, with a text for those who do not see it; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.history.record import Sample
from trainmaster.controller.kube.clock import parse_time
from trainmaster.controller.web.html import Markup, tag

_WIDTH: Final = 640
_HEIGHT: Final = 120
_MARGIN: Final = 8
_MOST: Final = 8

Point = tuple[datetime, float]


def charts(samples: Sequence[Sample]) -> Iterator[Markup]:
    """Draw the progress, and each number that a job reported at least twice."""
    names = sorted({name for each in samples for name in each.metrics})
    series: dict[str, list[tuple[str, str | int | None]]]
    series = {"progress (%)": [(each.time, each.percentage) for each in samples]}
    series |= {name: [(each.time, each.metrics.get(name)) for each in samples] for name in names}
    drawn = 0
    for name, values in series.items():
        points = sorted(point for time, value in values if (point := _point(time, value)) is not None)
        if len(points) > 1 and drawn < _MOST:
            drawn += 1
            yield _chart(name, points, whole=name == "progress (%)")


def _point(time: str, value: str | int | None) -> Point | None:
    try:
        moment, number = parse_time(time), float(value if value is not None else math.nan)
    except ValueError:
        return None
    return (moment, number) if math.isfinite(number) else None


def _chart(name: str, points: Sequence[Point], *, whole: bool) -> Markup:
    values = [value for _, value in points]
    low, high = (0.0, 100.0) if whole else (min(values), max(values))
    first, last = points[0][0], points[-1][0]
    seconds = (last - first).total_seconds() or 1.0
    # Halved before they are subtracted: the difference of two numbers may be too large for one.
    span = (high / 2 - low / 2) or 1.0
    line = " ".join(
        f"{_MARGIN + (moment - first).total_seconds() / seconds * (_WIDTH - 2 * _MARGIN):.1f},"
        f"{_HEIGHT - _MARGIN - (min(max(value, low), high) / 2 - low / 2) / span * (_HEIGHT - 2 * _MARGIN):.1f}"
        for moment, value in points
    )
    described = f"{name}: from {_number(values[0])} to {_number(values[-1])}, in {len(points)} reports"
    drawing = tag(
        "svg",
        tag("title", described),
        tag("polyline", points=line, class_="line"),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=described,
        preserveAspectRatio="none",
    )
    scale = tag(
        "p",
        f"lowest {_number(min(values))}, highest {_number(max(values))}, last {_number(values[-1])}",
        class_="scale",
    )
    return tag("figure", tag("figcaption", name), drawing, scale, class_="chart")


def _number(value: float) -> str:
    return f"{value:.4g}"
