import asyncio

import pytest
from support.commands import TIMEOUT
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, EVENTS, NAMESPACES
from trainmaster.devcluster.events import EventBroadcaster, EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

NOTE = Note("Warning", "Broken", "it does not work")


@pytest.fixture
async def subject(cluster: Stepper) -> JsonObject:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "subject"}}
    return await cluster.api.create(CONFIGMAPS, obj, namespace="default")


async def test_a_fact_is_one_event_for_all_clients_and_counted_again(cluster: Stepper, subject: JsonObject) -> None:
    """Also after a restart."""
    await EventRecorder(cluster.api, "tester").record(subject, NOTE, action="Testing")
    (event,) = cluster.objects(EVENTS)
    assert event["involvedObject"]["uid"] == subject["metadata"]["uid"]
    assert event["involvedObject"]["kind"] == "ConfigMap"
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Broken", "it does not work")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"
    assert (event["count"], event["source"], event["action"]) == (1, {"component": "tester"}, "Testing")
    await cluster.advance(60)
    await EventRecorder(cluster.api, "tester").record(subject, NOTE)
    (event,) = cluster.objects(EVENTS)
    assert event["count"] == 2
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")
    await EventRecorder(cluster.api, "tester").record(subject, Note("Warning", "Broken", "something else"))
    assert len(cluster.objects(EVENTS)) == 2


async def test_events_of_one_second_are_listed_as_they_were_recorded(cluster: Stepper, subject: JsonObject) -> None:
    """Also those of several components: kubectl sorts by seconds, and leaves what is equal as it was listed."""
    recorders = [EventRecorder(cluster.api, name) for name in ("scheduler", "kubelet")]
    for number in range(10):
        await recorders[number % 2].record(subject, Note("Normal", "Step", str(number)))
        await recorders[0].record(subject, Note("Normal", "Step", "0"))
    assert [event["message"] for event in cluster.objects(EVENTS)] == [str(number) for number in range(10)]
    assert cluster.objects(EVENTS)[0]["count"] == 11


async def test_an_event_that_is_gone_is_written_anew(cluster: Stepper, subject: JsonObject) -> None:
    recorder = EventRecorder(cluster.api, "tester")
    for _ in range(2):
        await recorder.record(subject, NOTE)
        (event,) = cluster.objects(EVENTS)
        assert event["count"] == 1
        await cluster.delete(EVENTS, event["metadata"]["name"])


async def test_long_messages_are_cut_between_characters(cluster: Stepper, subject: JsonObject) -> None:
    await EventRecorder(cluster.api, "tester").record(subject, Note("Normal", "Long", "ä" * 2000))
    assert cluster.objects(EVENTS)[0]["message"] == "ä" * 512


async def test_a_refused_event_is_forgotten(cluster: Stepper, subject: JsonObject) -> None:
    """A terminating namespace accepts no events; that must not disturb the controller that has something to say."""
    await cluster.namespace("team")
    await cluster.api.delete(NAMESPACES, None, "team")
    gone = {**subject, "metadata": {**subject["metadata"], "namespace": "team"}}
    await EventRecorder(cluster.api, "tester").record(gone, NOTE)
    assert cluster.objects(EVENTS) == []


async def test_a_broadcaster_writes_in_the_background_what_was_queued(cluster: Stepper, subject: JsonObject) -> None:
    broadcaster = EventBroadcaster(cluster.api, "tester")
    broadcaster.normal(subject, "Started", "it runs", field_path="spec.containers{c}")
    broadcaster.warning(subject, "Failed", "it does not")
    assert cluster.objects(EVENTS) == []
    writing = asyncio.create_task(broadcaster.run())
    async with asyncio.timeout(TIMEOUT):
        while len(events := cluster.objects(EVENTS)) < 2:
            await asyncio.sleep(0)
    writing.cancel()
    found = {(event["type"], event["reason"], event["involvedObject"].get("fieldPath")) for event in events}
    assert found == {("Normal", "Started", "spec.containers{c}"), ("Warning", "Failed", None)}
