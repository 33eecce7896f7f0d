"""Gauges of what all replicas know, and that only the one that leads shows: so that sums over replicas are right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakValueDictionary

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainmaster.metrics.registry import REGISTRY


class LeaderGauge(Collector):
    """A family of gauges, which is there without series while nobody leads in this process.

    Args:
        name: Its name.
        documentation: What it means.
        labels: The names of its labels.
    """

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
