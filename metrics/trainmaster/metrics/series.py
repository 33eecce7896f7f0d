"""Counters, gauges and histograms for what happens often: those of the client library, at a fifth of the time.

Guarantees:
- They are exposed as the library's own are: names, labels, buckets, order and exemplars.
- No update of any thread is lost, although none takes a lock: it adds to one number at a time, in the midst of which
  CPython switches to no other thread. So an update may also be interrupted by the garbage collector, or by a signal.
- A scrape in the midst of an observation may lack its sum, as with the library.

An exemplar is neither checked nor copied: whoever makes one keeps to the limits of OpenMetrics, and changes it no more.
`LeaderGauge` is of what all replicas know, and only the one that leads shows it: so sums over replicas are right.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from weakref import WeakValueDictionary

import prometheus_client
from prometheus_client.core import Exemplar, GaugeMetricFamily, Metric, Sample
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from trainmaster.metrics.registry import REGISTRY


class Counter(prometheus_client.Counter):
    """A number that only grows."""

    def _metric_init(self) -> None:
        self._amount = 0.0
        self._exemplar: Exemplar | None = None

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        """Add to it."""
        self._amount += amount
        if exemplar:
            self._exemplar = Exemplar(exemplar, amount, time.time())

    def _child_samples(self) -> Iterable[Sample]:
        return (Sample("_total", {}, self._amount, None, self._exemplar),)


class Gauge(prometheus_client.Gauge):
    """A number."""

    def inc(self, amount: float = 1) -> None:
        """Add to it."""
        self._amount += amount

    def dec(self, amount: float = 1) -> None:
        """Take from it."""
        self._amount -= amount

    def set(self, value: float) -> None:
        """Make it another one."""
        self._amount = float(value)

    def _metric_init(self) -> None:
        self._amount = 0.0

    def _child_samples(self) -> Iterable[Sample]:
        return (Sample("", {}, self._amount, None, None),)


class Histogram(prometheus_client.Histogram):
    """How often which values were observed."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Count a value."""
        bucket = bisect_left(self._upper_bounds, amount)
        self._counts[bucket] += 1
        self._amount += amount
        if exemplar:
            self._exemplars[bucket] = Exemplar(exemplar, amount, time.time())

    def _metric_init(self) -> None:
        # How many values are in each bucket and in none before it; the last bucket has no bound.
        self._counts = [0] * len(self._upper_bounds)
        self._amount = 0.0
        self._exemplars: dict[int, Exemplar] = {}

    def _child_samples(self) -> Iterable[Sample]:
        counts = [float(count) for count in accumulate(self._counts)]
        for bucket, (bound, count) in enumerate(zip(self._upper_bounds, counts, strict=True)):
            labels = {"le": floatToGoString(bound)}  # type: ignore[no-untyped-call] # the library left it untyped
            yield Sample("_bucket", labels, count, None, self._exemplars.get(bucket))
        yield Sample("_count", {}, counts[-1], None, None)
        yield Sample("_sum", {}, self._amount, None, None)


class LeaderGauge(Collector):
    """A family of gauges, which is there without series while nobody leads in this process."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        self.name, self.labels = name, labels
        self._documentation = documentation
        self._shown: WeakValueDictionary[int, Amounts] = WeakValueDictionary()
        REGISTRY.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the family as it is now."""
        family = GaugeMetricFamily(self.name, self._documentation, labels=self.labels)
        total: dict[tuple[str, ...], int] = {}
        for amounts in list(self._shown.values()):
            for labels, amount in list(amounts.items()):
                total[labels] = total.get(labels, 0) + amount
        for labels, amount in total.items():
            family.add_metric(labels, amount)
        yield family

    def show(self, amounts: Amounts) -> None:
        """Expose these from now on, for as long as they live."""
        self._shown[id(amounts)] = amounts

    def hide(self, amounts: Amounts) -> None:
        """Expose them no longer."""
        self._shown.pop(id(amounts), None)


class Amounts(dict[tuple[str, ...], int]):
    """What one manager knows: a number for each combination of labels. What was there once stays, at 0."""

    def add(self, by: int, *labels: str) -> None:
        """Add to one of them."""
        self[labels] = self.get(labels, 0) + by
