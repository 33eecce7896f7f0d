"""Metrics: one by one of this process, since a long run leaves thousands of series, and by HTTP as Prometheus does."""

from collections.abc import Iterable, Mapping

import aiohttp
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as read_text
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


OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
"""The header Accept of Prometheus."""


async def scrape(port: int, *, accept: str = OPEN_METRICS) -> list[Sample]:
    """Read all series of a process."""
    text, content_type = await fetch(port, accept=accept)
    families: Iterable[Metric]
    families = read_open_metrics(text) if content_type.startswith("application/openmetrics-text") else read_text(text)
    return [sample for family in families for sample in family.samples]


async def fetch(port: int, *, accept: str = OPEN_METRICS) -> tuple[str, str]:
    """Read the metrics of a process; returns the text and its content type."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept}) as answer,
    ):
        assert answer.status == 200
        return await answer.text(), answer.headers["Content-Type"]


def total(samples: Iterable[Sample], name: str, **labels: str) -> float:
    """Add up the series of a name that have these labels."""
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())
