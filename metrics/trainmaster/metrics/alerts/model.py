"""What an alert is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from trainmaster.metrics.promql import AnyFamily, Expression, Matcher, Queries, UnknownLabel, aggregate

JOB: Final = "kubeflow-trainer-controller-manager"
"""The label by which Prometheus tells the manager's series from those of other controllers: the name of its Service."""

RUNBOOKS: Final = "docs/runbooks"
"""Where the pages are that say what to do, in the repository; the chart can make addresses of it."""

QUERIES: Final = Queries(target=f'job="{JOB}"', window="5m")

_LABEL: Final = re.compile(r"\$labels\.(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """When somebody has to look, and at what."""

    name: str
    severity: Literal["critical", "warning"]
    """Critical: jobs are refused, or nothing happens to them, until somebody does something."""

    duration: str
    """How long it must be so."""

    expression: Expression
    summary: str
    description: str

    def __post_init__(self) -> None:
        unknown = set(_LABEL.findall(f"{self.summary} {self.description}")) - self.expression.labels
        if unknown:
            raise UnknownLabel(f"{self.name} tells of {', '.join(unknown)}, which {self.expression.text} does not have")

    @property
    def runbook(self) -> str:
        """The page that says what to do."""
        return f"{RUNBOOKS}/{self.name}.md"


def largest(family: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
    """Return the largest of the series of a gauge, by some labels."""
    return aggregate("max", QUERIES.series(family, **where), *by)


def smallest(family: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
    """Return the smallest of the series of a gauge, by some labels."""
    return aggregate("min", QUERIES.series(family, **where), *by)
