"""The families of TrainJobs: bounded labels, gauges of whoever leads, exemplars within the limit of OpenMetrics."""

from __future__ import annotations

import pytest
from prometheus_client.exposition import choose_encoder
from support.series import read_open_metrics, series

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
