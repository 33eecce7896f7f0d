"""PromQL expressions, made of the families of this package.

Guarantees:
- An expression cannot name a metric that does not exist, nor a label that its family does not have: making it raises
  `UnknownLabel`, or the name of the family is not there to be imported.
- An expression knows the labels of its series, so that whoever names lines after labels can be checked too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from trainmaster.metrics.series import LeaderGauge

TARGET_LABELS: Final = frozenset({"job", "namespace", "pod"})
"""What Prometheus adds to whatever it scrapes by a ServiceMonitor."""

Aggregation: TypeAlias = Literal["sum", "max", "min", "count"]


class UnknownLabel(ValueError):
    """An expression names a label that its series do not have."""


class Family(NamedTuple):
    """A family that is no object of this package: a collector makes it at each scrape, or Prometheus by itself."""

    name: str
    labels: tuple[str, ...] = ()


UP: Final = Family("up")
SAMPLES: Final = Family("scrape_samples_post_metric_relabeling")
CPU: Final = Family("process_cpu_seconds_total")
MEMORY: Final = Family("process_resident_memory_bytes")
OPEN_FILES: Final = Family("process_open_fds")
MOST_FILES: Final = Family("process_max_fds")
STARTED: Final = Family("process_start_time_seconds")

BY_PROMETHEUS: Final = frozenset({UP, SAMPLES})
"""What every Prometheus knows of its targets."""

BY_LINUX: Final = frozenset({CPU, MEMORY, OPEN_FILES, MOST_FILES, STARTED})
"""What the client library tells of a process, where there is /proc."""


AnyFamily: TypeAlias = MetricWrapperBase | LeaderGauge | Family


class Matcher(NamedTuple):
    """What a label must be, otherwise than equal to a text."""

    operator: Literal["!=", "=~", "!~"]
    text: str


def like(pattern: str) -> Matcher:
    """Select labels that match a regular expression."""
    return Matcher("=~", pattern)


def unlike(pattern: str) -> Matcher:
    """Select labels that do not match a regular expression."""
    return Matcher("!~", pattern)


@dataclass(frozen=True, slots=True)
class Expression:
    """A text of PromQL, and the labels that its series have."""

    text: str
    labels: frozenset[str]
    is_simple: bool = True
    """Whether it needs no parentheses beside an operator."""

    def __truediv__(self, other: Expression | float) -> Expression:
        return self._combine("/", other)

    def __mul__(self, other: Expression | float) -> Expression:
        return self._combine("*", other)

    def __sub__(self, other: Expression | float) -> Expression:
        return self._combine("-", other)

    def __add__(self, other: Expression | float) -> Expression:
        return self._combine("+", other)

    def __gt__(self, other: Expression | float) -> Expression:
        return self._combine(">", other)

    def __lt__(self, other: Expression | float) -> Expression:
        return self._combine("<", other)

    def __and__(self, other: Expression) -> Expression:
        """Keep the series that the other expression has too."""
        return self._combine("and", other)

    def unless(self, other: Expression, *on: str) -> Expression:
        """Keep the series that the other expression does not have, by all labels or by some."""
        if not on:
            return self._combine("unless", other)
        _demand(on, self.labels & other.labels, f"{self.text} or {other.text}")
        text = f"{_operand(self)} unless on ({', '.join(on)}) {_operand(other)}"
        return Expression(text, self.labels, is_simple=False)

    def earlier(self, by: str) -> Expression:
        """Return what a selection was some time before."""
        return Expression(f"{self.text} offset {by}", self.labels)

    def until(self) -> Expression:
        """Return how many seconds are left until a moment."""
        return Expression(f"{_operand(self)} - time()", self.labels, is_simple=False)

    def observed(self) -> Expression:
        """Leave out quantiles of nothing, which are NaN."""
        return Expression(f"{_operand(self)} >= 0", self.labels, is_simple=False)

    def or_zero(self) -> Expression:
        """Take 0 where there is no series at all."""
        return Expression(f"{_operand(self)} or vector(0)", self.labels, is_simple=False)

    def _combine(self, operator: str, other: Expression | float) -> Expression:
        if not isinstance(other, Expression):
            return Expression(f"{_operand(self)} {operator} {other:.10g}", self.labels, is_simple=False)
        if other.labels != self.labels:
            raise UnknownLabel(f"{self.text} and {other.text} have different labels: no series of one meets the other")
        return Expression(f"{_operand(self)} {operator} {_operand(other)}", self.labels, is_simple=False)


def _operand(expression: Expression) -> str:
    return expression.text if expression.is_simple else f"({expression.text})"


def absent(expression: Expression) -> Expression:
    """Return 1 where an expression has no series."""
    return Expression(f"absent({expression.text})", frozenset())


def aggregate(aggregation: Aggregation, expression: Expression, *by: str) -> Expression:
    """Return one series for each combination of some labels."""
    _demand(by, expression.labels, expression.text)
    grouping = f" by ({', '.join(by)})" if by else ""
    return Expression(f"{aggregation}{grouping} ({expression.text})", frozenset(by))


def top(number: int, expression: Expression) -> Expression:
    """Return the largest series."""
    return Expression(f"topk({number}, {expression.text})", expression.labels)


@dataclass(frozen=True, slots=True)
class Queries:
    """Expressions about the same targets, with rates over the same time.

    Args:
        target: Matchers that select the targets, as in `job="..."`.
    """

    target: str
    window: str

    def series(self, family: AnyFamily, **where: str | Matcher) -> Expression:
        """Return the series of a gauge."""
        if isinstance(family, Counter | Histogram):
            raise TypeError(f"{name_of(family)} counts: a rate of it says something, its value does not")
        return self._select(family, "", where)

    def total(self, family: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return the sums of the series of a gauge, by some labels."""
        return aggregate("sum", self.series(family, **where), *by)

    def largest(self, family: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return the largest of the series of a gauge, by some labels."""
        return aggregate("max", self.series(family, **where), *by)

    def smallest(self, family: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return the smallest of the series of a gauge, by some labels."""
        return aggregate("min", self.series(family, **where), *by)

    def rate(self, family: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return how often something happens in a second; of a histogram, how often it was observed."""
        return self._over_time("rate", family, by, where)

    def increase(self, family: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return how often something happened within the window."""
        return self._over_time("increase", family, by, where)

    def values(self, counter: Counter) -> Expression:
        """Return the series of a counter as they are, for the values of their labels."""
        return self._select(counter, "", {})

    def within(self, window: str) -> Queries:
        """Return expressions about the same targets over another time."""
        return replace(self, window=window)

    def count(self, counter: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return how often something happened within the window, the first time of each series included.

        `increase` cannot know that a series which begins with 1 was at 0 before, so it misses what happens once to each
        of many series. What a new series has reached counts here, also of a manager that has ended. A series is new if
        its manager was scraped before the window without it, or has started since. So a series that comes back after a
        gap between scrapes is not new.
        """
        if isinstance(counter, Gauge | LeaderGauge):
            raise TypeError(f"{name_of(counter)} is a gauge: it counts nothing")
        suffix = "_count" if isinstance(counter, Histogram) else ""
        counted = aggregate("sum", self._counted(self._select(counter, suffix, where)), *by)
        # Increases are extrapolated to the edges of the window.
        return Expression(f"round({counted.text})", counted.labels)

    def changes(self, family: AnyFamily, **where: str | Matcher) -> Expression:
        """Return how often the value of a gauge changed within the window."""
        selected = self.series(family, **where)
        return Expression(f"changes({selected.text}[{self.window}])", selected.labels)

    def lowest_sum(self, family: AnyFamily, **where: str | Matcher) -> Expression:
        """Return the smallest sum of the series of a gauge within the window; nothing unless there was one before it.

        The sum goes on when another manager leads.
        """
        selected = self.series(family, **where)
        lowest = f"min_over_time((sum ({selected.text}))[{self.window}:1m])"
        return Expression(f"{lowest} and sum ({selected.earlier(self.window).text})", frozenset(), is_simple=False)

    def quantile(self, quantile: float, histogram: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return a quantile of what a histogram observed within the window."""
        buckets = self._select(histogram, "_bucket", where)
        _demand(by, buckets.labels - {"le"}, buckets.text)
        rate = f"sum by ({', '.join((*by, 'le'))}) (rate({buckets.text}[{self.window}]))"
        return Expression(f"histogram_quantile({quantile:g}, {rate})", frozenset(by))

    def quantile_of_few(self, quantile: float, histogram: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return a quantile as `quantile` does, with the first time of each series, as `count` counts."""
        buckets = self._select(histogram, "_bucket", where)
        _demand(by, buckets.labels - {"le"}, buckets.text)
        counted = aggregate("sum", self._counted(buckets), *by, "le")
        return Expression(f"histogram_quantile({quantile:g}, {counted.text})", frozenset(by))

    def sum_rate(self, histogram: AnyFamily, *by: str, **where: str | Matcher) -> Expression:
        """Return how much a histogram observes in a second: of seconds, the share of time; of sizes, bytes a second."""
        return self._rated(histogram, "_sum", by, where)

    def _counted(self, selected: Expression) -> Expression:
        scraped = f"({self.series(UP).text} offset {self.window} == 1)"
        started = f"(max_over_time({self.series(STARTED).text}[{self.window}]) > time() - {_seconds(self.window)})"
        new = (
            f"((max_over_time({selected.text}[{self.window}]) unless {selected.text} offset {self.window}) "
            f"and on (job, namespace, pod) ({scraped} or {started}))"
        )
        return Expression(f"{new} or increase({selected.text}[{self.window}])", selected.labels)

    def _over_time(
        self, function: str, family: AnyFamily, by: tuple[str, ...], where: dict[str, str | Matcher]
    ) -> Expression:
        if isinstance(family, Gauge | LeaderGauge):
            raise TypeError(f"{name_of(family)} is a gauge: it has no rate")
        suffix = "_count" if isinstance(family, Histogram) else ""
        return self._rated(family, suffix, by, where, function=function)

    def _rated(
        self, family: AnyFamily, suffix: str, by: tuple[str, ...], where: dict[str, str | Matcher],
        *, function: str = "rate",
    ) -> Expression:  # fmt: skip
        selected = self._select(family, suffix, where)
        return aggregate("sum", Expression(f"{function}({selected.text}[{self.window}])", selected.labels), *by)

    def _select(self, family: AnyFamily, suffix: str, where: dict[str, str | Matcher]) -> Expression:
        name = name_of(family) + suffix
        labels = frozenset(labels_of(family)) | TARGET_LABELS | ({"le"} if suffix == "_bucket" else set())
        _demand(where, labels, name)
        matchers = [self.target, *(_matcher(label, value) for label, value in where.items())]
        return Expression(f"{name}{{{','.join(matchers)}}}", labels)


def _seconds(window: str) -> int:
    return int(window[:-1]) * {"s": 1, "m": 60, "h": 3600}[window[-1]]


def name_of(family: AnyFamily) -> str:
    """Return the name of the series of a family; those of histograms have a suffix besides."""
    if not isinstance(family, MetricWrapperBase):
        return family.name
    name: str = family._name  # noqa: SLF001 - the library has no accessor
    return f"{name}_total" if isinstance(family, Counter) else name


def labels_of(family: AnyFamily) -> tuple[str, ...]:
    """Return the names of the labels of a family."""
    if isinstance(family, MetricWrapperBase):
        return tuple(family._labelnames)  # noqa: SLF001 - the library has no accessor
    return tuple(family.labels)


def _matcher(label: str, value: str | Matcher) -> str:
    operator, text = value if isinstance(value, Matcher) else ("=", value)
    return f'{label}{operator}"{text}"'


def _demand(wanted: Iterable[Any], known: frozenset[str], what: str) -> None:
    unknown = sorted(set(wanted) - known)
    if unknown:
        raise UnknownLabel(f"{what} has no label {', '.join(unknown)}; it has {', '.join(sorted(known))}")
