"""What families there are: for whoever documents them, or refers to them."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final, NamedTuple

from prometheus_client import Histogram
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

import trainmaster.metrics
from trainmaster.metrics.registry import REGISTRY

_OF_PROCESS: Final = {
    "process_cpu_seconds_total": "Time of the CPU that the process has taken",
    "process_max_fds": "Files that the process may have open",
    "process_open_fds": "Files that the process has open",
    "process_resident_memory_bytes": "Memory that the process has",
    "process_start_time_seconds": "When the process started, in seconds since 1970",
    "process_virtual_memory_bytes": "Addresses that the process has",
}
"""Families that the client library leaves out where there is no /proc."""


class Family(NamedTuple):
    """One family, as it is exposed."""

    name: str
    """That of its samples: of a counter with `_total`; of a histogram without `_bucket`, `_sum` and `_count`."""

    type: str
    """`counter`, `gauge` or `histogram`."""

    labels: tuple[str, ...]
    meaning: str
    samples: int
    """Series for each combination of values of its labels."""


def register_families() -> None:
    """Have all families in the registry, also those of what this process does not use."""
    for module in pkgutil.iter_modules(trainmaster.metrics.__path__):
        if not module.ispkg:
            importlib.import_module(f"trainmaster.metrics.{module.name}")


def families() -> list[Family]:
    """Return all families, by name, whether anything of them has been counted or not."""
    register_families()
    found = {
        name: Family(name, "counter" if name.endswith("_total") else "gauge", (), meaning, 1)
        for name, meaning in _OF_PROCESS.items()
    }
    for collector in list(REGISTRY._collector_to_names):  # noqa: SLF001 - it names its collectors nowhere else
        for metric in collector.collect():
            family = _family(collector, metric)
            found.setdefault(family.name, family)
    return [found[name] for name in sorted(found)]


def _family(collector: Collector, metric: Metric) -> Family:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    bounds = {each.labels["le"] for each in metric.samples if "le" in each.labels}
    # Of what has no samples yet, nobody else knows labels and buckets.
    if isinstance(collector, MetricWrapperBase):
        labels = tuple(collector._labelnames)  # noqa: SLF001
        if isinstance(collector, Histogram):
            bounds = set(map(str, collector._upper_bounds))  # noqa: SLF001
    else:
        declared = getattr(metric, "_labelnames", ())
        labels = tuple(declared or sorted({label for each in metric.samples for label in each.labels}))
    samples = len(bounds) + 2 if metric.type == "histogram" else 1
    return Family(name, metric.type, labels, metric.documentation, samples)
