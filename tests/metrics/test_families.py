"""Dashboards depend on these names; a change here breaks them."""

import re

import pytest
from prometheus_client import generate_latest
from prometheus_client.exposition import choose_encoder
from support.series import read_open_metrics, series, value_of

from trainmaster.metrics import controller, rest_client, statusserver  # noqa: F401 - importing registers the families
from trainmaster.metrics.cache import InformerMetrics
from trainmaster.metrics.controller import LeaderMetrics, controller_series
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.trainjobs import (
    MOST_ACCELERATORS,
    MOST_RUNTIMES,
    OTHER,
    TIME_TO_JOBSET,
    BoundedValues,
    TrainJobsMetrics,
    exemplar_of,
    observe,
)


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


@pytest.mark.guarantee("K-16")
def test_a_label_has_so_many_values_and_the_rest_are_other() -> None:
    values = BoundedValues(2)
    assert [values.admit(each) for each in ("a", "b", "c", "a", "c")] == ["a", "b", OTHER, "a", OTHER]
    assert [values.find(each) for each in ("a", "c", "d")] == ["a", OTHER, OTHER]


def test_gauges_are_shown_while_their_manager_leads() -> None:
    metrics = TrainJobsMetrics()
    metrics.jobs.add(1, "Waiting", "", "only-here")
    assert only_here() == []
    metrics.publish()
    assert only_here() == [1]
    metrics.withdraw()
    assert only_here() == []


def only_here() -> list[float]:
    return [each.value for each in series("trainmaster_trainjobs") if each.labels["runtime"] == "only-here"]


def test_gauges_of_a_manager_that_is_gone_are_gone() -> None:
    metrics = TrainJobsMetrics()
    metrics.jobs.add(1, "Waiting", "", "only-here")
    metrics.publish()
    assert only_here() == [1]
    del metrics
    assert only_here() == []


@pytest.mark.guarantee("K-16")
def test_accelerators_have_so_many_names() -> None:
    metrics = TrainJobsMetrics()
    for number in range(MOST_ACCELERATORS + 5):
        metrics.count_accelerators(2, "Running", f"example.com/gpu-{number}", "a")
    assert len(metrics.accelerators) == MOST_ACCELERATORS + 1
    assert metrics.accelerators["Running", OTHER, "a"] == 10
    assert metrics.runtimes._most == MOST_RUNTIMES


@pytest.mark.parametrize("trace", ["", "0af7651916cd43dd8448eb211c80319c"])
@pytest.mark.parametrize("trainjob", ["default/short", f"{'n' * 63}/{'j' * 63}", f"{'n' * 63}/{'é' * 253}"])
def test_an_exemplar_is_what_open_metrics_allows(trainjob: str, trace: str) -> None:
    observe(TIME_TO_JOBSET, 3.0, "exemplary", exemplar=exemplar_of(trainjob, trace))
    encode, _ = choose_encoder("application/openmetrics-text")
    text = encode(REGISTRY.restricted_registry([f"{TIME_TO_JOBSET._name}_bucket"])).decode()
    exemplars = [
        sample.exemplar
        for family in read_open_metrics(text)
        for sample in family.samples
        if sample.labels.get("runtime") == "exemplary" and sample.exemplar
    ]
    (exemplar,) = exemplars
    assert exemplar.value == 3
    assert trainjob.startswith(exemplar.labels["trainjob"])
    assert exemplar.labels.get("trace_id", "") == trace
