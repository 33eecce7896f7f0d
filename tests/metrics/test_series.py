"""Our counters, gauges and histograms are those of the client library, only cheaper."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder

from trainmaster.metrics import series

BUCKETS = (0.005, 0.1, 1, 2.5)
_LABELS = st.sampled_from(["a", 'b"', "c\n"])
_AMOUNTS = st.floats(0, 10) | st.sampled_from([0, 1, 2.5, 0.1, 1e-8, 1e9, float("inf")])
_EXEMPLARS = st.none() | st.dictionaries(st.sampled_from(["job", "trace"]), st.sampled_from(["x", "ü"]), max_size=2)
_UPDATES = st.tuples(st.sampled_from(["inc", "dec", "set", "gauge", "observe"]), _LABELS, _AMOUNTS, _EXEMPLARS)


@pytest.fixture(autouse=True)
def same_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exemplars be of the same moment, and the library leave out what the registry has it leave out."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # the library left it untyped
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.5)


@given(st.lists(_UPDATES, max_size=30))
def test_exposed_is_what_the_library_exposes(updates: list[tuple[str, str, float, dict[str, str] | None]]) -> None:
    assert list(_exposed(series, updates)) == list(_exposed(prometheus_client, updates))


def _exposed(library: ModuleType, updates: list[tuple[str, str, float, dict[str, str] | None]]) -> Iterator[str]:
    registry = prometheus_client.CollectorRegistry(auto_describe=True)
    counter = library.Counter("counted_total", "Counted", ("label",), registry=registry)
    gauge = library.Gauge("level", "A level", ("label",), registry=registry)
    histogram = library.Histogram("seen_seconds", "Seen", ("label",), buckets=BUCKETS, registry=registry)
    bare = library.Counter("bare_total", "Without labels", registry=registry)
    for method, label, amount, exemplar in updates:
        if method == "inc":
            counter.labels(label).inc(amount, exemplar)
            bare.inc()
        elif method == "observe":
            histogram.labels(label).observe(amount, exemplar)
        elif method == "gauge":
            gauge.labels(label).inc(amount)
        else:
            getattr(gauge.labels(label), method)(amount)
    for accepted in ("text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0"):
        encode, _ = choose_encoder(accepted)
        yield encode(registry).decode()


def test_the_library_still_measures_what_is_in_progress_and_asks_functions() -> None:
    registry = prometheus_client.CollectorRegistry()
    gauge = series.Gauge("level", "A level", registry=registry)
    with gauge.track_inprogress():
        assert registry.get_sample_value("level") == 1
    assert registry.get_sample_value("level") == 0
    gauge.set_function(lambda: 7.0)
    assert registry.get_sample_value("level") == 7


def test_no_update_of_any_thread_is_lost() -> None:
    registry = prometheus_client.CollectorRegistry()
    counter = series.Counter("counted_total", "Counted", registry=registry)
    gauge = series.Gauge("level", "A level", registry=registry)
    histogram = series.Histogram("seen", "Seen", buckets=BUCKETS, registry=registry)

    def update(times: int) -> None:
        for _ in range(times):
            counter.inc(0.5)
            gauge.inc()
            histogram.observe(2.0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(partial(update, 20_000)) for _ in range(4)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)
    assert registry.get_sample_value("counted_total") == 40_000
    assert registry.get_sample_value("level") == 80_000
    assert registry.get_sample_value("seen_count") == 80_000
    assert registry.get_sample_value("seen_sum") == 160_000
