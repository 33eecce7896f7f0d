"""Events, and Leases as leader election uses them."""

import pytest
from support.conformance import Collection
from support.samples import lease

from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
def about(namespace: str) -> JsonObject:
    """What the events are about."""
    return {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": namespace, "uid": "u"}


def _core(about: JsonObject, **fields: object) -> JsonObject:
    return {
        "metadata": {"name": "a"},
        "involvedObject": about,
        "reason": "Started",
        "message": "text",
        "type": "Normal",
        "source": {"component": "tester"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:01Z",
        "count": 2,
        **fields,
    }


def _event(about: JsonObject, **fields: object) -> JsonObject:
    return {
        "metadata": {"name": "a"},
        "regarding": about,
        "reason": "Started",
        "note": "text",
        "type": "Normal",
        "action": "Starting",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/tester",
        "reportingInstance": "tester-1",
        **fields,
    }


async def test_a_core_event_is_read_and_watched_under_the_newer_name(
    core: Collection, events: Collection, about: JsonObject
) -> None:
    async with events.watch() as stream:
        made = await core.made(_core(about))
        seen = await stream.next()
    assert (seen["type"], seen["object"]["note"]) == ("ADDED", "text")
    event = await events.read("a")
    assert (event["apiVersion"], event["kind"]) == ("events.k8s.io/v1", "Event")
    assert (event["regarding"], event["note"]) == (about, "text")
    assert event["deprecatedSource"] == {"component": "tester"}
    assert event["deprecatedCount"] == 2
    assert event["deprecatedFirstTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["deprecatedLastTimestamp"] == "2026-01-01T00:00:01Z"
    assert event["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_new_event_is_read_under_the_core_name(core: Collection, events: Collection, about: JsonObject) -> None:
    await events.made(_event(about))
    event = await core.read("a")
    assert (event["apiVersion"], event["kind"]) == ("v1", "Event")
    assert (event["involvedObject"], event["message"]) == (about, "text")
    assert (event["reportingComponent"], event["reportingInstance"]) == ("example.com/tester", "tester-1")
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"


async def test_both_names_have_the_same_events(core: Collection, events: Collection, about: JsonObject) -> None:
    await core.made(_core(about))
    (await events.create(_event(about))).refused(409, "AlreadyExists")
    await events.made({**_event(about), "metadata": {"name": "b"}})
    assert await core.names() == await events.names() == ["a", "b"]
    (await events.delete("a")).ok(200)
    (await core.get("a")).refused(404, "NotFound")


@pytest.mark.parametrize("field", ["eventTime", "reportingController", "reportingInstance", "action", "reason"])
async def test_a_newer_event_is_complete(events: Collection, about: JsonObject, field: str) -> None:
    obj = {name: value for name, value in _event(about).items() if name != field}
    (await events.create(obj)).refused(422, "Invalid")


async def test_the_note_of_a_newer_event_is_short(events: Collection, about: JsonObject) -> None:
    await events.made(_event(about, note="x" * 1024))
    for note in ("x" * 1025, "é" * 513):  # bytes count, not letters
        answer = await events.create({**_event(about, note=note), "metadata": {"name": "b"}})
        assert {field for field, _ in answer.causes()} == {"message"}


async def test_cluster_wide_events_live_in_default(core: Collection, events: Collection, about: JsonObject) -> None:
    del about["namespace"]
    for answer in (await core.create(_core(about)), await events.create(_event(about))):
        assert ("involvedObject.namespace", "FieldValueInvalid") in answer.causes()


async def test_a_series_counts_the_repetitions(core: Collection, events: Collection, about: JsonObject) -> None:
    await events.made(_event(about))
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}
    assert (await events.patch("a", {"series": series})).ok(200)["series"] == series
    assert (await core.read("a"))["series"] == series


@pytest.mark.parametrize("change", [{"reason": "Other"}, {"type": "Warning"}, {"action": "Other"}], ids=str)
async def test_a_newer_event_tells_its_story_once(events: Collection, about: JsonObject, change: JsonObject) -> None:
    await events.made(_event(about))
    answer = await events.patch("a", change)
    [field] = change
    assert answer.causes() == [(field, "FieldValueInvalid")] * (2 if field == "reason" else 1)
    assert "field is immutable" in answer.json["message"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("involvedObject.name=p", ["a"]),
        ("involvedObject.name=other", []),
        ("involvedObject.kind=Pod,involvedObject.uid=u", ["a"]),
        ("reason=Started,type=Normal", ["a"]),
        ("type!=Normal", []),
        ("source=tester", ["a"]),
    ],
)
async def test_core_events_are_selected_by_what_they_are_about(
    core: Collection, about: JsonObject, selector: str, expected: list[str]
) -> None:
    await core.made(_core(about))
    assert await core.names(fieldSelector=selector) == expected


async def test_newer_events_are_selected_by_what_they_are_about(events: Collection, about: JsonObject) -> None:
    await events.made(_event(about))
    assert await events.names(fieldSelector="regarding.name=p,reason=Started") == ["a"]
    assert await events.names(fieldSelector="regarding.name=other") == []


async def test_a_core_event_may_be_created_by_a_put(core: Collection, about: JsonObject) -> None:
    (await core.put(_core(about))).ok(201)


@pytest.mark.parametrize(
    ("time", "rest"),
    [
        ("2026-01-01T00:00:00Z", 'cannot parse "Z" as ".000000"'),
        ("2026-01-01T01:00:00.5+01:00", 'cannot parse ".5+01:00" as ".000000"'),
        ("2026-01-01T00:00:00.1234567Z", 'cannot parse "7Z" as "Z07:00"'),
    ],
)
async def test_a_time_of_a_lease_has_six_digits_behind_the_second(leases: Collection, time: str, rest: str) -> None:
    message = (await leases.create(lease("a", renewTime=time))).refused(400, "BadRequest")["message"]
    assert message == (
        'Lease in version "v1" cannot be handled as a Lease: '
        f'parsing time "{time}" as "2006-01-02T15:04:05.000000Z07:00": {rest}'
    )


async def test_a_time_of_a_lease_is_printed_in_utc(leases: Collection) -> None:
    spec = (await leases.made(lease("a", renewTime="2026-01-01T01:00:00.500000+01:00")))["spec"]
    assert spec["renewTime"] == "2026-01-01T00:00:00.500000Z"


async def test_one_of_two_candidates_wins(leases: Collection) -> None:
    (await leases.create(lease("a", holderIdentity="one"))).ok(201)
    (await leases.create(lease("a", holderIdentity="two"))).refused(409, "AlreadyExists")
    assert (await leases.read("a"))["spec"]["holderIdentity"] == "one"


async def test_one_of_two_renewals_wins(leases: Collection) -> None:
    held = await leases.made(lease("a", holderIdentity="one"))
    for holder, winner in (("two", True), ("three", False)):
        answer = await leases.put({**held, "spec": {**held["spec"], "holderIdentity": holder}})
        assert answer.status == (200 if winner else 409)
    assert (await leases.read("a"))["spec"]["holderIdentity"] == "two"
