"""Metrics as a Prometheus server gets them: by HTTP, from every replica, in either format."""

from __future__ import annotations

from collections.abc import Iterable

import aiohttp
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from support.series import read_open_metrics

OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
"""The header Accept of Prometheus."""


async def scrape(port: int, *, accept: str = OPEN_METRICS) -> list[Sample]:
    """Read all series of a process."""
    text, content_type = await fetch(port, accept=accept)
    families: Iterable[Metric]
    if content_type.startswith("application/openmetrics-text"):
        families = read_open_metrics(text)
    else:
        families = text_string_to_metric_families(text)
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
