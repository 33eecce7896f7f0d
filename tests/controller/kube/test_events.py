"""Events as the API gets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from trainmaster.controller.kube.clock import VirtualClock
from trainmaster.controller.kube.errors import Forbidden, KubeError, NotFound, TransportError
from trainmaster.controller.kube.events import QUEUE_LIMIT, SERIES_LIMIT, EventRecorder, cut
from trainmaster.controller.kube.resources import EVENTS, Resource
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

    async def create(self, resource: Resource, obj: JsonObject, **options: Any) -> JsonObject:
        assert resource is EVENTS
        self._fail()
        self.created.append(obj)
        return obj

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: Any) -> JsonObject:
        self._fail()
        if self.expired:
            raise NotFound(status=404)
        self.patched.append((name, patch))
        return {}

    def _fail(self) -> None:
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
        api, reporting_controller="c", reporting_instance="c-" + "x" * 200, clock=virtual, new_id=lambda: next(ids)
    )
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.wait({task})


def record(recorder: EventRecorder, *, note: str = "broken", regarding: JsonObject = JOB) -> None:
    recorder.event(regarding, type="Warning", reason="Failed", action="Resolve", note=note)


async def test_event_has_every_field(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
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


async def test_event_about_a_cluster_object_goes_to_the_default_namespace(
    recorder: EventRecorder, api: EventServer, virtual: VirtualClock
) -> None:
    record(recorder, regarding={"kind": "ClusterTrainingRuntime", "metadata": {"name": "r", "uid": "u"}})
    await virtual.advance(0)
    assert api.created[0]["metadata"]["namespace"] == "default"
    assert "namespace" not in api.created[0]["regarding"]


async def test_repeats_become_a_series(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    """F-7: the first repeat at once, the others counted and written once a minute."""
    record(recorder)
    await virtual.advance(1)
    record(recorder)
    await virtual.advance(1)
    assert api.patched == [("job.id0", {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}})]
    for _ in range(10):
        record(recorder)
        await virtual.advance(1)
    assert len(api.patched) == 1
    await virtual.advance(120)
    assert [patch["series"]["count"] for _, patch in api.patched] == [2, 12]
    assert len(api.created) == 1


async def test_quiet_series_is_finished(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    """F-7"""
    record(recorder)
    await virtual.advance(361)
    record(recorder)
    await virtual.advance(0)
    assert [event["metadata"]["name"] for event in api.created] == ["job.id0", "job.id1"]
    await virtual.advance(1000)
    assert not recorder._series


async def test_event_that_the_server_dropped_is_made_again(
    recorder: EventRecorder, api: EventServer, virtual: VirtualClock
) -> None:
    record(recorder)
    await virtual.advance(1)
    api.expired = True
    record(recorder)
    await virtual.advance(1)
    assert [event["metadata"]["name"] for event in api.created] == ["job.id0", "job.id1"]
    assert api.created[1]["series"]["count"] == 2


async def test_another_note_is_another_event(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    record(recorder, note="one")
    record(recorder, note="two")
    await virtual.advance(0)
    assert [event["note"] for event in api.created] == ["one", "two"]


async def test_failures_stop_nothing(recorder: EventRecorder, api: EventServer, virtual: VirtualClock) -> None:
    """F-8"""
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


async def test_event_that_failed_is_created_by_its_repeat(
    recorder: EventRecorder, api: EventServer, virtual: VirtualClock
) -> None:
    """A repeat of what the server never got must not be a patch of nothing."""
    api.failure = TransportError("down")
    record(recorder)
    await virtual.advance(0)
    api.failure = None
    await virtual.advance(120)
    assert len(api.created) == 1


async def test_full_queue_drops_and_says_so(api: EventServer) -> None:
    """F-8: nobody runs the recorder, so nothing leaves the queue."""
    recorder = EventRecorder(api, reporting_controller="c", reporting_instance="i")
    with capture_logs() as logs:
        for number in range(max(QUEUE_LIMIT, SERIES_LIMIT) + 50):
            record(recorder, note=str(number))
    assert [entry["event"] for entry in logs] == ["events are dropped, the queue is full"]
    assert len(recorder._series) == SERIES_LIMIT


@pytest.mark.parametrize("text", ["a" * 2000, "ä" * 2000, "🙂" * 2000, "x🙂" * 2000])
def test_notes_are_cut_between_characters(text: str) -> None:
    short = cut(text, 1024)
    assert 1018 <= len(short.encode()) <= 1024
    assert text.startswith(short.removesuffix("..."))
    assert cut("short", 1024) == "short"
