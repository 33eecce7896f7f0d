"""Dashboards depend on these names; a change here breaks them."""

from __future__ import annotations

import re

import pytest
from prometheus_client import generate_latest
from support.series import value_of

from trainmaster.metrics import controller, rest_client, statusserver  # noqa: F401 - importing registers the families
from trainmaster.metrics.cache import InformerMetrics
from trainmaster.metrics.controller import LeaderMetrics, controller_series
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.metrics.registry import REGISTRY


def families() -> dict[str, str]:
    return {family.name: family.type for family in REGISTRY.collect()}


@pytest.mark.guarantee("W-30", "W-31", "K-8", "K-10", "K-11")
def test_upstream_names() -> None:
    """W-30, W-31, K-8, K-10, K-11"""
    names = families()
    for name in ("depth", "unfinished_work_seconds", "longest_running_processor_seconds"):
        assert names[f"workqueue_{name}"] == "gauge"
    for name in ("adds", "retries"):
        assert names[f"workqueue_{name}"] == "counter"
    for name in ("queue_duration_seconds", "work_duration_seconds"):
        assert names[f"workqueue_{name}"] == "histogram"
    for name in ("total", "errors_total", "panics_total", "timeouts_total"):
        assert names[f"controller_runtime_reconcile_{name}".removesuffix("_total")] == "counter"
    assert names["controller_runtime_terminal_reconcile_errors"] == "counter"
    assert names["controller_runtime_reconcile_time_seconds"] == "histogram"
    assert names["controller_runtime_max_concurrent_reconciles"] == "gauge"
    assert names["controller_runtime_active_workers"] == "gauge"
    assert names["rest_client_requests"] == "counter"
    assert names["leader_election_master_status"] == "gauge"


@pytest.mark.guarantee("K-7", "K-8")
def test_controller_series_exist_at_zero() -> None:
    """K-7, K-8"""
    controller_series("fresh")
    for result in ("error", "requeue_after", "requeue", "success"):
        labels = {"controller": "fresh", "result": result}
        assert value_of("controller_runtime_reconcile_total", labels) == 0
    labels = {"controller": "fresh"}
    for name in ("reconcile_errors", "terminal_reconcile_errors", "reconcile_panics", "reconcile_timeouts"):
        assert value_of(f"controller_runtime_{name}_total", labels) == 0
    assert value_of("controller_runtime_reconcile_time_seconds_count", labels) == 0
    assert value_of("controller_runtime_active_workers", labels) == 0


@pytest.mark.guarantee("K-8")
def test_reconcile_buckets() -> None:
    """K-8: forty buckets from 5 ms to 60 s."""
    controller_series("buckets")
    edges = [
        sample.labels["le"]
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "controller_runtime_reconcile_time_seconds_bucket"
        and sample.labels["controller"] == "buckets"
    ]
    assert len(edges) == 41
    assert (edges[0], edges[-2], edges[-1]) == ("0.005", "60.0", "+Inf")


def test_nothing_is_exported_that_upstream_does_not_have() -> None:
    WorkQueueMetrics("fresh")
    LeaderMetrics("fresh")
    InformerMetrics("fresh")
    text = generate_latest(REGISTRY).decode()
    assert not re.search(r"^\w+_created[ {]", text, re.MULTILINE)
    assert 'leader_election_master_status{name="fresh"} 0.0' in text
    assert 'workqueue_depth{controller="fresh",name="fresh",priority="0"} 0.0' in text


def test_series_of_the_status_server_exist_at_zero() -> None:
    text = generate_latest(REGISTRY).decode()
    for code in (200, 403, 404, 408, 413, 422, 429, 500):
        assert f'trainmaster_progress_reports_total{{code="{code}"}}' in text
    for outcome in ("accepted", "refused", "failed"):
        assert f'trainmaster_progress_token_reviews_total{{outcome="{outcome}"}}' in text
    assert "trainmaster_progress_report_duration_seconds_count" in text
    assert "trainmaster_progress_reports_in_flight" in text
