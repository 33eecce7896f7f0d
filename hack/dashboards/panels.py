"""The answers of a Prometheus for every panel of a dashboard, and what is missing among them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.prometheus import INTERVAL, RATE_INTERVAL, Line, Prometheus
from trainmaster.metrics.alerts import JOB
from trainmaster.metrics.dashboards import Dashboard, Panel
from trainmaster.metrics.dashboards.grafana import LEADERS
from trainmaster.metrics.promql import Expression

_LABEL: Final = re.compile(r"\{\{(\w+)\}\}")
_VARIABLE: Final = re.compile(r"\$\w+")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line as it is called in its panel."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What Prometheus says about a dashboard, from one moment to another."""

    begin: float
    end: float
    lines: dict[str, list[Drawn]]
    """Of each panel, by its title."""

    leaders: list[float]
    """When another manager began to lead."""

    missing: list[str]
    """Queries without an answer that should have one, and variables without values."""

    empty: list[str]
    """Queries without an answer that may have none, with the reason."""


async def ask(prometheus: Prometheus, dashboard: Dashboard, begin: float, end: float) -> Answers:
    """Ask for everything that a dashboard shows."""
    lines: dict[str, list[Drawn]] = {}
    missing: list[str] = []
    empty: list[str] = []
    for panel in dashboard.panels:
        drawn = lines[panel.title] = []
        for query in panel.queries:
            answer = await prometheus.query_range(_filled(query.expression), begin, end, INTERVAL)
            found = [line for line in answer if line.points]
            if not found:
                (empty if panel.may_be_empty else missing).append(_described(dashboard, panel, query.expression))
            drawn += [Drawn(_called(query.legend, line), line.points) for line in found]
    missing += [
        f"{dashboard.title}: the variable {variable.name} has no values"
        for variable in dashboard.variables
        if not await prometheus.values(variable.name, _filled(variable.values))
    ]
    changes = await prometheus.query_range(_filled(LEADERS), begin, end, INTERVAL)
    # It is said of a leader for a minute; it began at the first of these moments.
    leaders = sorted(line.points[0][0] for line in changes if line.points and line.points[0][0] > begin + 60)
    return Answers(begin, end, lines, leaders, missing, empty)


def _filled(expression: Expression) -> str:
    """Put in what Grafana does in place of the variables."""
    values = {"$__rate_interval": RATE_INTERVAL, "$job": JOB}
    return _VARIABLE.sub(lambda found: values.get(found[0], ".*"), expression.text)


def _called(legend: str, line: Line) -> str:
    return _LABEL.sub(lambda found: line.labels.get(found[1], ""), legend).strip() or legend


def _described(dashboard: Dashboard, panel: Panel, expression: Expression) -> str:
    reason = f" ({panel.may_be_empty})" if panel.may_be_empty else ""
    return f"{dashboard.title}: {panel.title}{reason}: {expression.text}"
