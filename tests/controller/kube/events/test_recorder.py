"""Events as the API gets them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.events.correlator import AGGREGATE_MAX_EVENTS, BURST, COMBINED, MAX_ENTRIES
from trainmaster.controller.kube.events.recorder import QUEUE_LIMIT, TRIES, EventRecorder, cut
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, Forbidden, KubeError, NotFound, TransportError
from trainmaster.controller.kube.rest.resources import EVENTS, Resource
from trainmaster.runtime.jsontree import JsonObject

JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "job", "namespace": "ns", "uid": "u1", "resourceVersion": "5"},
}


class EventServer:
    """Keeps events; fails on demand."""

    def __init__(self) -> None:
        self.created: list[JsonObject] = []
        self.patched: list[tuple[str, JsonObject]] = []
        self.failure: KubeError | None = None
        self.expired = False
        self.exists = False
        self.tried = 0
        self.hang = asyncio.Event()
        self.hang.set()

    async def create(self, resource: Resource, obj: JsonObject, **options: Any) -> JsonObject:
        assert resource is EVENTS
        await self.hang.wait()
        self._fail()
        if self.exists:
            raise AlreadyExists(status=409)
        self.created.append(obj)
        return obj

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: Any) -> JsonObject:
        self._fail()
        if self.expired:
            raise NotFound(status=404)
        self.patched.append((name, patch))
        return {}

    def _fail(self) -> None:
        self.tried += 1
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def virtual() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def api() -> EventServer:
    return EventServer()


@pytest.fixture
async def recorder(api: EventServer, virtual: VirtualClock) -> AsyncIterator[EventRecorder]:
    ids = iter(f"id{number}" for number in range(10_000))
    made = EventRecorder(
        cast("KubeClient", api),
        reporting_controller="c",
        reporting_instance="c-" + "x" * 200,
        clock=virtual,
        new_id=lambda: next(ids),
    )
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.wait({task})


def record(
    recorder: EventRecorder, *, note: str = "broken", reason: str = "Failed", regarding: JsonObject = JOB
) -> None:
    recorder.event(regarding, type="Warning", reason=reason, action="Resolve", note=note)


def job(number: int) -> JsonObject:
    return {**JOB, "metadata": {"name": f"job-{number}", "namespace": "ns", "uid": f"u{number}"}}


@pytest.mark.guarantee("F-7")
async def test_an_event_has_every_field(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    record(recorder)
    await virtual.advance(0)
    (event,) = api.created
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "job.id0", "namespace": "ns"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "Failed",
        "action": "Resolve",
        "note": "broken",
        "regarding": {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "namespace": "ns",
            "name": "job",
            "uid": "u1",
            "resourceVersion": "5",
        },
        "reportingController": "c",
        "reportingInstance": event["reportingInstance"],
    }
    assert len(event["reportingInstance"]) == 128


async def test_a_note_has_no_credentials(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    """Notes quote what containers and servers say."""
    record(recorder, note="exit code 1: 401 for Authorization: Bearer abcdefghij0123456789abcdef")
    await virtual.advance(0)
    assert api.created[0]["note"] == "exit code 1: 401 for Authorization: Bearer [redacted]"


async def test_event_about_a_cluster_object_goes_to_the_default_namespace(
    recorder: EventRecorder, api: EventServer, virtual: VirtualClock
) -> None:
    record(recorder, regarding={"kind": "ClusterTrainingRuntime", "metadata": {"name": "r", "uid": "u"}})
    await virtual.advance(0)
    assert api.created[0]["metadata"]["namespace"] == "default"
    assert "namespace" not in api.created[0]["regarding"]


@pytest.mark.guarantee("F-7")
async def test_repeats_become_a_series(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    """The first repeat at once, the others counted, and written every half hour."""
    record(recorder)
    await virtual.advance(1)
    record(recorder)
    await virtual.advance(1)
    assert api.patched == [("job.id0", {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}})]
    for _ in range(19):
        record(recorder)
        await virtual.advance(100)
    assert len(api.created) == 1
    assert [patch["series"]["count"] for _, patch in api.patched] == [2, 21]
    record(recorder)
    await virtual.advance(500)
    assert [patch["series"]["count"] for _, patch in api.patched] == [2, 21, 22], "the last count when it ends"


@pytest.mark.guarantee("F-7")
async def test_a_quiet_series_is_finished(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    record(recorder)
    await virtual.advance(361)
    record(recorder)
    await virtual.advance(0)
    assert [event["metadata"]["name"] for event in api.created] == ["job.id0", "job.id1"]
    await virtual.advance(1000)
    assert len(recorder._correlator) == 0


@pytest.mark.guarantee("F-6")
async def test_after_ten_similar_events_the_rest_is_one(
    recorder: EventRecorder, api: EventServer, virtual: VirtualClock
) -> None:
    for number in range(30):
        record(recorder, note=f"port {number}")
        await virtual.advance(1)
    *plain, combined = [event["note"] for event in api.created]
    assert plain == [f"port {number}" for number in range(AGGREGATE_MAX_EVENTS)]
    assert combined == f"{COMBINED}port {AGGREGATE_MAX_EVENTS}"
    await virtual.advance(601)
    assert api.patched[-1][1]["series"]["count"] == 30 - AGGREGATE_MAX_EVENTS
    record(recorder, note="another")
    await virtual.advance(0)
    assert api.created[-1]["note"] == "another", "those of long ago do not count"


@pytest.mark.guarantee("F-6")
async def test_an_object_gets_a_burst_of_events_and_then_one_in_five_minutes(
    recorder: EventRecorder, api: EventServer, virtual: VirtualClock
) -> None:
    for number in range(BURST + 10):
        record(recorder, reason=f"Reason{number}")
        record(recorder, reason=f"Reason{number}")  # a repeat takes nothing from what is left
    record(recorder, regarding=job(2))
    await virtual.advance(0)
    assert len(api.created) == BURST + 1
    await virtual.advance(300)
    for number in range(10):
        record(recorder, reason=f"Later{number}")
    await virtual.advance(0)
    assert len(api.created) == BURST + 2


async def test_a_dropped_event_is_made_again(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    record(recorder)
    await virtual.advance(1)
    api.expired = True
    record(recorder)
    await virtual.advance(1)
    assert [event["metadata"]["name"] for event in api.created] == ["job.id0", "job.id1"]
    assert api.created[1]["series"]["count"] == 2


@pytest.mark.guarantee("F-8")
async def test_failures_stop_nothing(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    api.failure = TransportError("down")
    record(recorder, note="lost")
    await virtual.advance(0)
    api.failure = Forbidden(status=403, message="no events for you")
    with capture_logs() as logs:
        record(recorder, note="denied")
        await virtual.advance(0)
    assert [entry["log_level"] for entry in logs] == ["warning"]
    api.failure = None
    record(recorder, note="recorded")
    await virtual.advance(0)
    assert [event["note"] for event in api.created] == ["recorded"]
    await virtual.advance(10)
    assert [event["note"] for event in api.created] == ["recorded", "lost"]


@pytest.mark.guarantee("F-6")
async def test_a_write_is_tried_twelve_times(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    api.failure = TransportError("down")
    record(recorder)
    with capture_logs() as logs:
        await virtual.advance(300)
    assert api.tried == TRIES
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["event was not recorded"]


async def test_creates_are_sent_only_once(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    api.failure = TransportError("connection reset")
    record(recorder)
    await virtual.advance(1)
    record(recorder)
    api.failure, api.exists = None, True
    await virtual.advance(20)
    assert api.patched[0][1]["series"]["count"] == 2
    assert len(api.patched) == 1


@pytest.mark.guarantee("F-6", "F-8")
async def test_a_full_queue_drops_and_says_so(api: EventServer) -> None:
    """Nobody runs the recorder, so nothing leaves the queue; and memory stays bounded."""
    recorder = EventRecorder(cast("KubeClient", api), reporting_controller="c", reporting_instance="i")
    with capture_logs() as logs:
        for number in range(max(QUEUE_LIMIT, MAX_ENTRIES) + 50):
            record(recorder, regarding=job(number))
    assert [entry["event"] for entry in logs] == ["events are dropped, the queue is full"]
    assert recorder._queue.qsize() == QUEUE_LIMIT
    correlator = recorder._correlator
    assert [len(memory) for memory in (correlator._series, correlator._notes, correlator._limits._buckets)] == [
        MAX_ENTRIES
    ] * 3


@pytest.mark.guarantee("F-8")
async def test_flush_writes_what_waits(api: EventServer, virtual: VirtualClock) -> None:
    """Also without `run`, which may have been cancelled by then; and counts that nobody has written yet."""
    recorder = EventRecorder(cast("KubeClient", api), reporting_controller="c", reporting_instance="i", clock=virtual)
    for number in range(20):
        record(recorder, regarding=job(number))
        record(recorder, regarding=job(number))
    await recorder.flush(5)
    assert len(api.created) == 20
    for _ in range(3):
        record(recorder, regarding=job(7))
    await recorder.flush(5)
    assert [patch["series"]["count"] for _, patch in api.patched] == [5]


@pytest.mark.guarantee("F-8")
async def test_flush_waits_for_present_writes(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    api.hang.clear()
    record(recorder)
    await virtual.advance(0)
    flushing = asyncio.create_task(recorder.flush(5))
    await virtual.advance(1)
    assert not flushing.done()
    api.hang.set()
    await flushing
    assert len(api.created) == 1


async def test_repeats_follow_first_writes(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    api.hang.clear()
    record(recorder)
    await virtual.advance(0)
    record(recorder)
    api.hang.set()
    await virtual.advance(0)
    assert len(api.created) == 1
    assert [patch["series"]["count"] for _, patch in api.patched] == [2]


@pytest.mark.guarantee("F-8")
async def test_flush_ends_in_time_and_says_what_was_lost(api: EventServer, virtual: VirtualClock) -> None:
    recorder = EventRecorder(cast("KubeClient", api), reporting_controller="c", reporting_instance="i", clock=virtual)
    api.hang.clear()
    for number in range(3):
        record(recorder, regarding=job(number))
    with capture_logs() as logs:
        flushing = asyncio.create_task(recorder.flush(5))
        await virtual.advance(6)
        await flushing
    assert [(entry["event"], entry["lost"]) for entry in logs] == [("events were not recorded before the end", 3)]


@pytest.mark.parametrize("text", ["a" * 2000, "ä" * 2000, "🙂" * 2000, "x🙂" * 2000])
def test_notes_are_cut_between_characters(text: str) -> None:
    short = cut(text, 1024)
    assert 1018 <= len(short.encode()) <= 1024
    assert text.startswith(short.removesuffix("..."))
    assert cut("short", 1024) == "short"
