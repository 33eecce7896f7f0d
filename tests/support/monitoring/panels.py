"""What a Prometheus has no answer for, of all that a dashboard asks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from support.monitoring.prometheus import INTERVAL, RATE_INTERVAL, Prometheus

from trainmaster.metrics.alerts import JOB
from trainmaster.metrics.dashboards import Dashboard
from trainmaster.metrics.promql import Expression

_VARIABLE: Final = re.compile(r"\$\w+")


@dataclass(frozen=True, slots=True)
class Answers:
    """What was answered between two moments."""

    found: list[str]
    """Titles of panels with a query that has an answer."""

    missing: list[str]
    """Queries without an answer that should have one, and variables without values."""

    empty: list[str]
    """Queries without an answer that may have none, with the reason."""


async def ask(prometheus: Prometheus, dashboard: Dashboard, begin: float, end: float) -> Answers:
    """Ask for everything that a dashboard shows."""
    answers = Answers([], [], [])
    for panel in dashboard.panels:
        for query in panel.queries:
            lines = await prometheus.query_range(_filled(query.expression), begin, end, INTERVAL)
            if any(line.points for line in lines):
                answers.found.append(panel.title)
            elif panel.may_be_empty:
                answers.empty.append(f"{panel.title} ({panel.may_be_empty}): {query.expression.text}")
            else:
                answers.missing.append(f"{panel.title}: {query.expression.text}")
    for variable in dashboard.variables:
        if not await prometheus.values(variable.name, _filled(variable.values)):
            answers.missing.append(f"the variable {variable.name} has no values")
    return answers


def _filled(expression: Expression) -> str:
    """Put in what Grafana does in place of the variables."""
    values = {"$__rate_interval": RATE_INTERVAL, "$job": JOB}
    return _VARIABLE.sub(lambda found: values.get(found[0], ".*"), expression.text)
