"""The queue of ended spans, with exporters of all kinds."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from structlog.testing import capture_logs
from support.series import value_of

from trainmaster.controller.tracing import export_queue
from trainmaster.controller.tracing.export_queue import ExportQueue


class Exporter(SpanExporter):
    """Keeps what it gets, as soon as it may."""

    def __init__(self, *, blocked: bool = False, error: Exception | None = None) -> None:
        self.got: list[ReadableSpan] = []
        self.called = threading.Event()
        self.may = threading.Event()
        self.error = error
        if not blocked:
            self.may.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.called.set()
        self.may.wait(60)
        if self.error is not None:
            raise self.error
        self.got += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


@contextmanager
def counted(result: str) -> Iterator[list[float]]:
    """How many spans became that during the block."""

    def now() -> float:
        return value_of("trainmaster_tracing_spans_total", {"result": result}) or 0

    before, found = now(), list[float]()
    yield found
    found.append(now() - before)


def spans(number: int) -> list[ReadableSpan]:
    return [ReadableSpan(str(each)) for each in range(number)]


@pytest.fixture
def _never_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_queue, "INTERVAL", 3600.0)


@pytest.mark.guarantee("P-37")
@pytest.mark.usefixtures("_never_by_time")
def test_the_end_sends_what_is_queued() -> None:
    exporter = Exporter()
    queue = ExportQueue(exporter, endpoint="collector")
    for each in spans(3):
        queue.on_end(each)
    assert exporter.got == []
    with counted("exported") as exported:
        queue.close(60)
    assert [each.name for each in exporter.got] == ["0", "1", "2"]
    assert exported == [3]


@pytest.mark.guarantee("P-37")
def test_what_has_no_place_is_dropped_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_queue, "BATCH", 1)
    exporter = Exporter(blocked=True)
    queue = ExportQueue(exporter, endpoint="collector", size=2)
    queue.on_end(spans(1)[0])
    assert exporter.called.wait(60)
    with counted("dropped") as dropped:
        for each in spans(5):
            queue.on_end(each)
    assert dropped == [3]
    with capture_logs() as logged:
        queue.close(0.01)
    (line,) = logged
    assert (line["event"].partition(":")[0], line["spans"]) == ("the last traces were not sent", 2)
    with counted("dropped") as dropped:
        queue.on_end(spans(1)[0])
    assert dropped == [1]
    exporter.may.set()
    queue._thread.join(60)
    assert len(exporter.got) == 1, "it gave up on the others"


@pytest.mark.guarantee("P-37")
@pytest.mark.usefixtures("_never_by_time")
def test_an_exporter_that_raises_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_queue, "BATCH", 2)
    exporter = Exporter(error=RuntimeError("no way to https://me:hunter2@collector"))
    with capture_logs() as logged, counted("failed") as failed:
        queue = ExportQueue(exporter, endpoint="collector")
        for each in spans(4):
            queue.on_end(each)
        queue.close(60)
    assert failed == [4]
    (line,) = logged
    assert line["event"].startswith("traces cannot be sent")
    assert line["error"] == "RuntimeError: no way to https://[redacted]@collector"
