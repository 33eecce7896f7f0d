"""Expressions are made of families, and cannot name what these do not have."""

import pytest

from trainmaster.metrics import cache, controller, process, queue
from trainmaster.metrics.promql import (
    BY_LINUX,
    UP,
    Queries,
    UnknownLabel,
    absent,
    aggregate,
    like,
    name_of,
    top,
    unlike,
)
from trainmaster.metrics.registry import REGISTRY

QUERIES = Queries(target='job="a"', window="5m")


def test_a_counter_has_a_rate_and_a_gauge_a_value() -> None:
    assert QUERIES.rate(controller.ERRORS, "controller").text == (
        'sum by (controller) (rate(controller_runtime_reconcile_errors_total{job="a"}[5m]))'
    )
    assert QUERIES.series(queue.DEPTH, controller=like("a.*"), name=unlike("b")).text == (
        'workqueue_depth{job="a",controller=~"a.*",name!~"b"}'
    )
    with pytest.raises(TypeError, match="queue_depth is a gauge"):
        QUERIES.rate(queue.DEPTH)
    with pytest.raises(TypeError, match="queue_depth is a gauge"):
        QUERIES.count(queue.DEPTH)
    with pytest.raises(TypeError, match="reconcile_errors_total counts"):
        QUERIES.series(controller.ERRORS)


def test_a_histogram_has_quantiles_rates_and_sums() -> None:
    rate = 'rate(trainmaster_event_loop_lag_seconds_{}{{job="a"}}[5m])'
    assert QUERIES.quantile(0.99, process.LOOP_LAG, "pod").text == (
        f"histogram_quantile(0.99, sum by (pod, le) ({rate.format('bucket')}))"
    )
    assert QUERIES.sum_rate(process.LOOP_LAG).text == f"sum ({rate.format('sum')})"
    assert QUERIES.rate(process.LOOP_LAG).text == f"sum ({rate.format('count')})"


@pytest.mark.parametrize("wrong", ["colour", "le"])
def test_a_label_that_a_family_does_not_have_is_refused(wrong: str) -> None:
    with pytest.raises(UnknownLabel, match=f"workqueue_depth.* has no label {wrong}; it has controller, "):
        QUERIES.series(queue.DEPTH, **{wrong: "red"})
    with pytest.raises(UnknownLabel, match=f"has no label {wrong}"):
        aggregate("sum", QUERIES.series(queue.DEPTH), wrong)
    with pytest.raises(UnknownLabel, match=f"has no label {wrong}"):
        QUERIES.quantile(0.5, queue.QUEUE_DURATION, wrong)


def test_series_of_different_labels_do_not_meet() -> None:
    errors, all_of_them = QUERIES.rate(controller.ERRORS, "controller"), QUERIES.rate(controller.RECONCILES)
    with pytest.raises(UnknownLabel, match="have different labels"):
        errors / all_of_them


def test_operators_keep_to_their_operands() -> None:
    a, b = QUERIES.series(UP), QUERIES.series(UP, pod="b")
    assert ((a + b) * 2 - 1 > 0.5).text == '(((up{job="a"} + up{job="a",pod="b"}) * 2) - 1) > 0.5'
    assert ((a > 1) & (b < 2)).text == '(up{job="a"} > 1) and (up{job="a",pod="b"} < 2)'
    assert (a > 1).unless(b).or_zero().text == '((up{job="a"} > 1) unless up{job="a",pod="b"}) or vector(0)'
    assert a.unless(b < 1, "pod").text == 'up{job="a"} unless on (pod) (up{job="a",pod="b"} < 1)'
    with pytest.raises(UnknownLabel, match="has no label colour"):
        a.unless(b, "colour")
    assert absent(a > 0).text == 'absent(up{job="a"} > 0)'
    assert top(5, a).text == 'topk(5, up{job="a"})'
    assert (a > 10_000_000).text == 'up{job="a"} > 10000000'


@pytest.mark.nightly
def test_what_is_said_to_come_from_the_client_library_does() -> None:
    """Where there is /proc."""
    made = {sample.name for metric in REGISTRY.collect() for sample in metric.samples}
    assert {name_of(family) for family in BY_LINUX} <= made


def test_a_quantile_of_few_counts_likewise() -> None:
    assert QUERIES.within("1h").quantile_of_few(0.5, queue.WORK_DURATION, "controller").text == (
        f"histogram_quantile(0.5, sum by (controller, le) ({counted('workqueue_work_duration_seconds_bucket')}))"
    )


def test_what_happens_within_a_time_is_counted_from_the_first_on() -> None:
    assert QUERIES.within("1h").count(cache.FAILURES, "resource").text == (
        f"round(sum by (resource) ({counted('trainmaster_informer_failures_total')}))"
    )


def counted(name: str) -> str:
    series = f'{name}{{job="a"}}'
    started = '(max_over_time(process_start_time_seconds{job="a"}[1h]) > time() - 3600)'
    return (
        f"((max_over_time({series}[1h]) unless {series} offset 1h) "
        f'and on (job, namespace, pod) ((up{{job="a"}} offset 1h == 1) or {started})) or increase({series}[1h])'
    )
