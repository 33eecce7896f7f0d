"""Reading single metrics without collecting all of them: a long test run leaves thousands of series."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from trainmaster.metrics.registry import REGISTRY


def series(name: str) -> list[Sample]:
    """Return all series of a name."""
    families = REGISTRY.restricted_registry([name]).collect()
    return [each for family in families for each in family.samples if each.name == name]


def value_of(name: str, labels: Mapping[str, str] | None = None) -> float | None:
    """Return the value of one series; None if there is no such one."""
    return next((each.value for each in series(name) if each.labels == dict(labels or {})), None)


def read_open_metrics(text: str) -> list[Metric]:
    """Read what was exposed in the format of OpenMetrics; whatever is wrong with that raises."""
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call] # the library left it untyped
