"""What a dashboard is, whatever draws it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from trainmaster.metrics.controller import MASTER_STATUS
from trainmaster.metrics.promql import AnyFamily, Expression, Matcher, Queries, UnknownLabel, aggregate
from trainmaster.metrics.queue import DEPTH

QUERIES: Final = Queries(target='job=~"$job",namespace=~"$namespace"', window="$__rate_interval")
"""Of the targets that the variables of a dashboard select. A target without a namespace is one of all of them."""

Kind: TypeAlias = Literal["timeseries", "stat"]
"""Lines over time, or the newest value of each, large."""

Unit: TypeAlias = Literal["short", "ops", "reqps", "s", "bytes", "Bps", "percentunit"]
"""As Grafana calls them."""

Color: TypeAlias = Literal["green", "yellow", "orange", "red", "blue", "purple", "text"]

_LEGEND_LABEL: Final = re.compile(r"\{\{(\w+)\}\}")

IDLE: Final = "nothing was observed in this time"
"""What a panel of quantiles shows in place of lines."""

UNSEEN: Final = "no manager is scraped: see the alert TrainmasterDown"
"""What a panel shows whose series every manager has."""

WHOLE_WIDTH: Final = 24
"""Columns of a dashboard."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and what its lines are called; `{{label}}` stands for the value of a label."""

    expression: Expression
    legend: str

    def __post_init__(self) -> None:
        unknown = set(_LEGEND_LABEL.findall(self.legend)) - self.expression.labels
        if unknown:
            raise UnknownLabel(f"{self.expression.text} has no label {', '.join(unknown)} for {self.legend!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A diagram or a figure."""

    title: str
    description: str
    """What it means, and what to do when it looks bad."""

    queries: tuple[Query, ...]
    unit: Unit = "short"
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    is_stacked: bool = False
    """Whether the lines add up to something."""

    base: Color = "green"
    """Its color below all steps."""

    steps: tuple[tuple[float, Color], ...] = ()
    """From which value on it has which color. Diagrams have a mark at each."""

    colors: tuple[tuple[str, Color], ...] = ()
    """Of lines whose names mean something to everybody."""

    may_be_empty: str = ""
    """Why there may be no data although all is well; empty: there always are."""

    @property
    def no_value(self) -> str:
        """What it shows while there is no data."""
        is_quantile = any("histogram_quantile" in query.expression.text for query in self.queries)
        return self.may_be_empty or (IDLE if is_quantile else UNSEEN)


OF_STATES: Final[tuple[tuple[str, Color], ...]] = (
    ("Running", "blue"), ("Waiting", "yellow"), ("Suspended", "purple"), ("Restarting", "orange"),
    ("Complete", "green"), ("Failed", "red"),
)  # fmt: skip
"""The colors of the states of jobs."""


def waiting_keys(**where: str | Matcher) -> Expression:
    """Return how many keys wait in the queues of each controller.

    Managers that stand by are left out: their queues fill, and nobody takes anything out of them.
    """
    depth = QUERIES.series(DEPTH, **where).unless(QUERIES.series(MASTER_STATUS) < 1, "namespace", "pod")
    return aggregate("sum", depth, "controller")


def times(histogram: AnyFamily, *by: str, **where: str | Matcher) -> tuple[Query, ...]:
    """Return the median and the 99th percentile, over an hour, of what is seldom observed."""
    hour = QUERIES.within("1h")
    return _percentiles(lambda quantile: hour.quantile_of_few(quantile, histogram, *by, **where), by)


def quantiles(histogram: AnyFamily, *by: str, **where: str | Matcher) -> tuple[Query, ...]:
    """Return the median and the 99th percentile of what a histogram observed, by some labels."""
    return _percentiles(lambda quantile: QUERIES.quantile(quantile, histogram, *by, **where), by)


def _percentiles(quantile: Callable[[float], Expression], by: Sequence[str]) -> tuple[Query, ...]:
    name = " ".join(f"{{{{{label}}}}}" for label in by)
    return tuple(Query(quantile(each).observed(), f"{name} p{each * 100:.0f}".strip()) for each in (0.5, 0.99))


def rates(counter: AnyFamily, *by: str, **where: str | Matcher) -> tuple[Query, ...]:
    """Return how often something happens in a second, by some labels."""
    name = " ".join(f"{{{{{label}}}}}" for label in by)
    return (Query(QUERIES.rate(counter, *by, **where), name),)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What the reader of a dashboard chooses, from the values of a label."""

    name: str
    label: str
    values: Expression
    """Series with the label of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A page of panels."""

    uid: str
    """Also the name of its file."""

    title: str
    description: str
    """Whom it answers which question."""

    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    """Besides those that every dashboard has: the source, the job and the namespace."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in the order in which they are read."""
        return tuple(panel for row in self.rows for panel in row.panels)
