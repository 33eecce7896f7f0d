"""Traces of reconciles and requests, which are recorded, and the queue of ended spans."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import StatusCode
from structlog.testing import capture_logs
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.rest.errors import Conflict
from trainmaster.controller.kube.workqueue.queue import KeyedBackoff, WorkQueue
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.outcomes import DONE, Outcome, RequeueAfter, TerminalError
from trainmaster.controller.tracing import export_queue
from trainmaster.controller.tracing import tracing as tracing_module
from trainmaster.controller.tracing.export_queue import ExportQueue
from trainmaster.controller.tracing.spans import url_template
from trainmaster.controller.tracing.tracing import Tracing, new_sampler


class Kept(SpanExporter):
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


async def hang() -> None:
    await asyncio.Event().wait()


async def traced(*steps: object, uid: str | None = "u", rate: int = 1_000_000) -> list[ReadableSpan]:
    """The spans of a controller that reconciles one key after the other, each with a step of its own."""
    exporter, left = Kept(), list(steps)

    async def reconcile(_: str) -> Outcome:
        step = left.pop(0) if left else DONE
        if step is hang:
            await hang()
        if isinstance(step, BaseException):
            raise step
        return step  # type: ignore[return-value]

    clock = VirtualClock()
    queue = WorkQueue(clock=clock, backoff=KeyedBackoff(random=lambda: 0.0))
    async with Tracing("collector", rate_per_million=rate, exporter=exporter) as tracing:
        tracer = tracing.reconciles("demo_controller", "TrainJob", lambda _: uid)
        controller = Controller("traced", reconcile, queue, timeout=60, clock=clock, tracer=tracer)
        running = asyncio.create_task(controller.run())
        for number in range(len(steps)):
            queue.add(f"team/{number}")
        await clock.advance(59)
        await clock.advance(1)
        queue.shut_down()
        await asyncio.wait_for(running, 10)
    return exporter.spans


@pytest.mark.guarantee("K-14")
@pytest.mark.parametrize(
    ("step", "result", "kind", "text"),
    [
        (RuntimeError("odd"), "error", "RuntimeError", "odd"),
        (Conflict(status=409, message="it changed"), "error", "Conflict", "it changed"),
        (TerminalError("it is wrong"), "error", None, "it is wrong"),
        (hang, "error", None, "it took longer than 60 s and was cancelled"),
        (DONE, "success", None, None),
        (RequeueAfter(600), "requeue_after", None, None),
    ],
)
async def test_the_span_tells_what_went_wrong(step: object, result: str, kind: str | None, text: str | None) -> None:
    span, *_ = await traced(step)
    attributes = dict(span.attributes or {})
    assert attributes["trainmaster.reconcile.result"] == result
    assert attributes.get("error.type") == kind
    events = [dict(event.attributes or {}) for event in span.events]
    if text is None:
        assert (events, span.status.status_code) == ([], StatusCode.UNSET)
    else:
        (event,) = events
        assert text in str(event["exception.message"])
        assert (event.get("exception.type"), span.status.status_code) == (kind, StatusCode.ERROR)


@pytest.mark.guarantee("K-14")
async def test_what_is_not_sampled_leaves_nothing_and_what_is_gone_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await traced(DONE, RuntimeError("odd"), rate=0) == []
    # An object that is gone has a span without links.
    first, second = await traced(DONE, DONE, uid=None)
    assert "k8s.trainjob.uid" not in (first.attributes or {})
    assert list(first.links) == list(second.links) == []
    # How many objects are remembered is bounded.
    monkeypatch.setattr(tracing_module, "MOST_OBJECTS", 2)
    async with Tracing("collector", rate_per_million=1_000_000, exporter=Kept()) as tracing:
        tracer = tracing.reconciles("demo_controller", "TrainJob", lambda key: key)
        for uid in "abc":
            with tracer.reconcile(uid):
                pass
        assert [bool(tracing.trace_id(uid)) for uid in "abc"] == [False, True, True]


def test_names_of_objects_become_placeholders() -> None:
    trainer = "/apis/trainer.kubeflow.org/v1alpha1"
    status = f"{trainer}/namespaces/{{namespace}}/trainjobs/{{name}}/status"
    for path, template, namespace in (
        ("/api/v1/namespaces/team/pods/p/log", "/api/v1/namespaces/{namespace}/pods/{name}/log", "team"),
        ("/api/v1/namespaces/team/configmaps", "/api/v1/namespaces/{namespace}/configmaps", "team"),
        ("/api/v1/namespaces/team", "/api/v1/namespaces/{name}", ""),
        ("/api/v1/pods", "/api/v1/pods", ""),
        (f"{trainer}/namespaces/team/trainjobs/demo/status", status, "team"),
        (f"{trainer}/clustertrainingruntimes/torch", f"{trainer}/clustertrainingruntimes/{{name}}", ""),
        ("/apis/kubeflow.org/v1", "/apis/kubeflow.org/v1", ""),
        ("/version", "/version", ""),
        ("/", "/", ""),
    ):
        assert url_template(path) == (template, namespace)


UIDS = [str(UUID(int=number << 64 | number)) for number in range(10_000)]


def sampled(sampler: Sampler, trace_id: int, uid: str | None) -> bool:
    attributes = {"k8s.trainjob.name": "demo"} | ({"k8s.trainjob.uid": uid} if uid else {})
    return (
        sampler.should_sample(None, trace_id, "reconcile", attributes=attributes).decision is Decision.RECORD_AND_SAMPLE
    )


@pytest.mark.guarantee("K-14")
def test_of_one_object_all_reconciles_are_recorded_or_none() -> None:
    sampler = new_sampler(100_000)
    found = [{sampled(sampler, trace_id, uid) for trace_id in (1, 2**63, 2**127 + 5)} for uid in UIDS]
    assert all(len(each) == 1 for each in found)
    assert 800 < sum(each == {True} for each in found) < 1200, "one in ten"
    for rate, some in ((0, False), (1_000_000, True)):
        assert {sampled(new_sampler(rate), 2**64 - 1, uid) for uid in (*UIDS[:50], None)} == {some}


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
