"""Informers: the store and the handlers are what counts."""

import asyncio
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs
from support.commands import TIMEOUT, eventually
from support.informers import Ear, Script, Until, bookmark, event, failure, pod, pod_list, run_until, running
from support.series import value_of
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.jsontree import JsonObject, why_unreadable


def gauge(name: str) -> float | None:
    return value_of(f"trainmaster_informer_{name}", {"resource": "pods"})


@pytest.mark.guarantee("S-2", "S-3", "S-6", "S-15")
async def test_a_relist_is_told_as_differences(server: Any, informer: Informer) -> None:
    """The store changes first; unchanged objects are silent, vanished ones come as tombstones."""
    server.on(
        "list",
        server.reply(200, pod_list(5, pod("same", 1), pod("changed", 2), pod("gone", 3))),
        server.reply(200, pod_list(9, pod("same", 1), pod("changed", 8), pod("new", 7))),
    )
    server.on("watch", server.stream(event("ERROR", {"kind": "Status", "code": 410})))
    ear = Ear(informer)
    await run_until(informer, lambda: len(server.requests("watch")) == 2)
    assert ear.heard == ["+same!", "+changed!", "+gone!", "-gone", "~changed:2>8", "+new"]
    assert ear.deleted == [(pod("gone", 3), True)]
    assert ear.sizes == [3] * 6


async def test_a_removed_handler_hears_nothing_more(server: Any, informer: Informer) -> None:
    server.on("list", server.reply(200, pod_list(5, pod("a", 1))))
    ear = Ear(informer)
    ear.remove()
    await run_until(informer, lambda: informer.has_synced)
    assert ear.heard == []


@pytest.mark.guarantee("S-10")
async def test_a_failing_handler_harms_nobody(server: Any, informer: Informer) -> None:

    def fail(delta: Delta) -> None:
        raise RuntimeError("handler bug")

    informer.add_event_handler(fail)
    ear = Ear(informer)
    server.on("list", server.reply(200, pod_list(5, pod("a", 1))))
    with capture_logs() as logs:
        await run_until(informer, lambda: informer.has_synced)
    assert ear.heard == ["+a!"]
    assert [entry["key"] for entry in logs if entry["event"] == "handler failed"] == ["ns/a"]


@pytest.mark.guarantee("S-15")
async def test_a_duplicate_event_is_not_told_twice(server: Any, informer: Informer) -> None:
    server.on("list", server.reply(200, pod_list(5, pod("a", 4))))
    server.on(
        "watch", server.stream(event("ADDED", pod("a", 4)), event("DELETED", pod("x", 6)), bookmark(9), then="hang")
    )
    ear = Ear(informer)
    await run_until(informer, lambda: informer.store.resource_version == 9)
    assert ear.heard == ["+a!"]


@pytest.mark.guarantee("S-1", "R-30")
async def test_every_event_is_told_in_order() -> None:
    """Nothing collapses, not even an object that lives for three events; a deletion brings the last state."""
    clock = VirtualClock()
    script = Script(clock)
    informer = Informer(script, PODS, clock=clock)
    ear = Ear(informer)
    async with running(informer):
        await script.send(
            bookmark(1, end=True),
            event("ADDED", pod("a", 2)),
            event("MODIFIED", pod("a", 3)),
            event("MODIFIED", pod("a", 4)),
            event("DELETED", pod("a", 5)),
            event("ADDED", pod("a", 6, uid="second")),
        )
    assert ear.heard == ["+a", "~a:2>3", "~a:3>4", "-a", "+a"]
    assert ear.deleted == [(pod("a", 5), False)]
    assert ear.sizes == [1, 1, 1, 0, 1]


@pytest.mark.guarantee("S-8", "S-16", "S-17")
async def test_handlers_cannot_change_what_is_stored_without_managed_fields(server: Any, informer: Informer) -> None:
    def spoil(delta: Delta) -> None:
        (delta.new or {})["metadata"]["name"] = "spoiled"

    informer.add_event_handler(spoil)
    server.on("list", server.reply(200, pod_list(5, pod("a", 1, managedFields=[{}]))))
    server.on("watch", server.stream(event("ADDED", pod("b", 6, managedFields=[{}])), then="hang"))
    await run_until(informer, lambda: len(informer.store) == 2)
    assert list(informer.store.each()) == [pod("a", 1), pod("b", 6)]


@pytest.mark.guarantee("S-10", "S-11")
async def test_a_waiting_part_of_a_snapshot_is_counted_and_a_handler_that_comes_meanwhile_hears_it_once(
    server: Any, informer: Informer
) -> None:
    """Handlers have no buffers: all that can wait is what a snapshot has changed. Its delivery pauses for others."""
    server.on("list", server.reply(200, pod_list(5, *(pod(f"p{number}", number) for number in range(1, 1001)))))
    delivered = 0
    waiting: list[tuple[float | None, int]] = []
    late: list[Ear] = []

    def come() -> None:
        waiting.append((gauge("undelivered"), 1000 - delivered))
        late.append(Ear(informer))

    def added(delta: Delta) -> None:
        nonlocal delivered
        delivered += 1
        if delta.key == "ns/p150":
            asyncio.get_running_loop().call_soon(come)

    informer.add_event_handler(added)
    await run_until(informer, lambda: informer.has_synced)
    ((counted, left),) = waiting
    assert counted == left
    assert 0 < left <= 850
    assert gauge("undelivered") == 0
    (ear,) = late
    assert len(ear.heard) == len(set(ear.heard)) == 1000


@pytest.mark.guarantee("S-12")
async def test_synced_means_that_the_handlers_have_heard(server: Any, informer: Informer) -> None:
    server.on("list", server.reply(200, pod_list(5, *(pod(f"p{number}", number) for number in range(1, 501)))))
    synced: list[tuple[int, bool]] = []
    informer.add_event_handler(lambda change: synced.append((len(informer.store), informer.has_synced)))
    await run_until(informer, lambda: informer.has_synced)
    assert synced == [(500, False)] * 500


@pytest.mark.guarantee("S-14")
@pytest.mark.parametrize(("drawn", "hours"), [(0.0, 9), (0.5, 10), (0.999999, 11)])
async def test_who_asked_is_reminded_every_ten_hours_without_a_request(drawn: float, hours: int) -> None:
    """Or ten percent earlier or later: otherwise all caches of all replicas would be gone through at once."""
    clock = VirtualClock()
    script = Script(clock)
    informer = Informer(script, PODS, clock=clock, random=lambda: drawn)
    asked: list[Delta] = []
    others: list[Delta] = []
    informer.add_event_handler(asked.append, resync=True)
    informer.add_event_handler(others.append)
    async with running(informer):
        await script.send(event("ADDED", pod("a", 1)), event("ADDED", pod("b", 2)), bookmark(3, end=True))
        await clock.advance(hours * 3600 - 1)
        assert len(asked) == 2
        await clock.advance(2)
        requests = len(script.opened)
    assert [(change.key, change.resync, change.old == change.new) for change in asked[2:]] == [
        ("ns/a", True, True),
        ("ns/b", True, True),
    ]
    assert len(others) == 2
    assert requests == 1


@pytest.mark.guarantee("S-14", "S-5")
async def test_no_reminder_overtakes_a_snapshot(server: Any, client: KubeClient, clock: Any, until: Until) -> None:
    """While one is being told the store is ahead: a handler would hear of the new state twice, or of a stranger."""
    informer = Informer(client, PODS, InformerOptions(resync_period=0.0), clock=clock)
    heard: list[tuple[str, bool]] = []
    informer.add_event_handler(lambda change: heard.append((change.key, change.resync)), resync=True)
    server.on(
        "list",
        server.reply(200, pod_list(5, pod("a", 1))),
        server.reply(200, pod_list(9, *(pod(f"p{number}", number) for number in range(1, 1001)))),
    )
    server.on("watch", server.stream(failure(410)))
    async with running(informer):
        await until(lambda: len(informer.store) == 1000 and len(server.requests("watch")) == 2)
        await until(lambda: ("ns/p1000", True) in heard)
    known: set[str] = set()
    for key, resync in heard:
        assert (key in known) == resync or key == "ns/a"
        known.add(key)


@pytest.mark.guarantee("S-16")
async def test_an_object_whose_transform_fails_is_kept_whole(server: Any, client: KubeClient, clock: Any) -> None:
    def transform(obj: JsonObject) -> JsonObject:
        if obj["metadata"]["name"] == "odd":
            raise RuntimeError("transform bug")
        return {key: obj[key] for key in ("kind", "metadata")}

    informer = Informer(client, PODS, InformerOptions(transform=transform), clock=clock)
    server.on("list", server.reply(200, pod_list(5, pod("a", 1), pod("odd", 2))))
    with capture_logs() as logs:
        await run_until(informer, lambda: informer.has_synced)
    assert [("apiVersion" in obj) for obj in list(informer.store.each())] == [False, True]
    assert [entry["key"] for entry in logs if entry["event"].startswith("transform failed")] == ["ns/odd"]


@pytest.mark.guarantee("S-18")
@pytest.mark.parametrize("obliging", [True, False])
async def test_metadata_is_all_that_is_asked_for_and_kept(
    server: Any, client: KubeClient, clock: Any, obliging: bool
) -> None:
    """Also from a server that sends everything all the same."""

    def answer(obj: JsonObject) -> JsonObject:
        kind = "PartialObjectMetadata" if obliging else "Pod"
        version = "meta.k8s.io/v1" if obliging else "v1"
        return {**obj, "apiVersion": version, "kind": kind, **({} if obliging else {"spec": {"nodeName": "n"}})}

    informer = Informer(client, PODS, InformerOptions(metadata_only=True), clock=clock)
    server.on(
        "stream",
        server.stream(
            event("ADDED", answer(pod("a", 1))), bookmark(3, end=True), event("ADDED", answer(pod("b", 4))), then="hang"
        ),
    )
    await run_until(informer, lambda: len(informer.store) == 2)
    assert list(informer.store.each()) == [pod("a", 1), pod("b", 4)]
    form = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert server.seen[0].headers["Accept"] == f"{form},application/json", "or with everything"


@pytest.mark.guarantee("S-18")
async def test_lists_of_metadata(server: Any, client: KubeClient, clock: Any) -> None:
    informer = Informer(client, PODS, InformerOptions(metadata_only=True), clock=clock)
    listed = pod_list(5, pod("a", 1)) | {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
    server.on("list", server.reply(200, listed))
    await run_until(informer, lambda: informer.has_synced)
    assert list(informer.store.each()) == [pod("a", 1)]
    form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert server.requests("list")[0].headers["Accept"] == f"{form},application/json"


@pytest.mark.guarantee("S-19")
async def test_selectors_reach_the_server(server: Any, client: KubeClient, clock: Any) -> None:
    """What is not selected costs neither traffic nor memory; so each of the three requests has to say it."""
    informer = Informer(
        client, PODS, InformerOptions(label_selector="a=b", field_selector="spec.nodeName=n"), clock=clock
    )
    server.on("list", server.reply(200, pod_list(5)))
    await run_until(informer, lambda: server.requests("watch"))
    for seen in server.seen:
        assert seen.query["labelSelector"] == "a=b"
        assert seen.query["fieldSelector"] == "spec.nodeName=n"


@pytest.mark.guarantee("S-20")
async def test_the_size_of_the_cache_is_measured(server: Any, informer: Informer) -> None:
    server.on("list", server.reply(200, pod_list(5, pod("a", 1), pod("b", 2))))
    server.on("watch", server.stream(event("DELETED", pod("b", 6)), event("MODIFIED", pod("a", 7)), then="hang"))
    await run_until(informer, lambda: informer.store.resource_version == 7)
    assert gauge("objects") == 1
    assert gauge("resource_version") == 7
    assert gauge("bytes") == informer.store.total_size > 0
    assert gauge("synced") == 1


@pytest.mark.guarantee("E-7")
async def test_a_missing_kind_is_waited_for(server: Any, client: KubeClient, clock: Any, until: Until) -> None:
    """Every ten seconds, with one line that says what to install."""
    informer = Informer(client, JOBSETS, clock=clock)
    installed = False
    listed = {"kind": "JobSetList", "metadata": {"resourceVersion": "5"}, "items": []}

    async def answer(request: Any) -> Any:
        return await server.status(400 if installed else 404, "Whatever")(request)

    server.on("stream", *[answer] * 200)
    server.on("list", server.reply(200, listed))
    with capture_logs() as logs:
        async with running(informer):
            await until(lambda: len(clock.slept) >= 3)
            assert not informer.is_ready
            assert informer.failure is not None
            assert "install the CustomResourceDefinition jobsets.jobset.x-k8s.io" in informer.failure
            installed = True
            await until(lambda: informer.is_ready)
    assert informer.failure is None
    assert set(clock.slept) == {10.0}
    assert len(server.requests("list")) == 1, "what is not served to a watch is not asked for by a list"
    told = [(entry["log_level"], entry["event"]) for entry in logs if entry["log_level"] != "debug"]
    assert told == [("warning", "collection cannot be read, trying again"), ("info", "collection can be read again")]


@pytest.mark.guarantee("E-7")
@pytest.mark.parametrize(("code", "told"), [(403, ["info"]), (404, [])])
async def test_an_optional_kind_that_is_refused_holds_nobody_up(
    server: Any, client: KubeClient, clock: Any, until: Until, *, code: int, told: list[str]
) -> None:
    """It counts as ready without having synced, and syncs when it appears. That it is absent means nothing to most."""
    informer = Informer(client, JOBSETS, InformerOptions(optional=True), clock=clock)
    refused = [server.status(code, "Whatever")] * 3
    server.on("stream", *refused)
    listed = {"kind": "JobSetList", "metadata": {"resourceVersion": "5"}, "items": []}
    # A kind that is not served to a watch is not asked for by a list.
    server.on("list", *(refused if code == 403 else ()), server.reply(200, listed))
    with capture_logs() as logs:
        async with running(informer):
            await asyncio.wait_for(informer.wait_ready(), TIMEOUT)
            await until(lambda: informer.has_synced)
    refusals = [
        entry for entry in logs if entry["event"].startswith("collection cannot") and entry["log_level"] != "debug"
    ]
    assert [entry["log_level"] for entry in refusals] == told


@pytest.mark.guarantee("E-7")
async def test_an_optional_kind_is_waited_for_until_the_server_has_said_so(
    server: Any, client: KubeClient, clock: Any, until: Until
) -> None:
    """Until it answers nobody knows whether there is such a kind."""
    informer = Informer(client, JOBSETS, InformerOptions(optional=True), clock=clock)
    async with running(informer):
        await until(lambda: len(clock.slept) >= 2)
        assert not informer.is_ready


@pytest.mark.guarantee("P-10")
async def test_no_task_is_made_for_an_object() -> None:
    clock = VirtualClock()
    script = Script(clock)
    informer = Informer(script, PODS, clock=clock)
    async with running(informer):
        await settle()
        before = len(asyncio.all_tasks())
        await script.send(
            *(event("ADDED", pod(f"p{number}", number)) for number in range(1, 101)), bookmark(200, end=True)
        )
        assert len(informer.store) == 100
        assert len(asyncio.all_tasks()) == before


def unreadable(name: str, version: int) -> bytes:
    """A pod of which nobody can read the spec."""
    return orjson.dumps(pod(name, version))[:-1] + b',"spec":' + b"[" * 5000 + b"]" * 5000 + b"}"


def frame(kind: str, obj: bytes) -> bytes:
    """An event of it."""
    return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}\n"


async def test_what_cannot_be_read_is_kept_by_metadata_counted_and_named_once(server: Any, informer: Informer) -> None:
    """By a list, by a streaming list, and by a watch; the others go on, and so does it once it can be read."""
    listed = orjson.dumps(pod_list(5, pod("a", 1)))[:-2] + b"," + unreadable("odd", 2) + b"]}"
    server.on("list", server.reply(200, listed), server.reply(200, listed))
    server.on(
        "watch",
        server.stream(event("ERROR", {"kind": "Status", "code": 410})),
        server.stream(
            frame("MODIFIED", unreadable("odd", 6)),
            frame("ADDED", unreadable("new", 7)),
            event("MODIFIED", pod("a", 8)),
            event("MODIFIED", pod("odd", 9)),
            frame("DELETED", unreadable("new", 10)),
            frame("MODIFIED", unreadable("a", 11)),
            then="hang",
        ),
    )
    ear = Ear(informer)
    with capture_logs() as logs:
        await run_until(informer, lambda: informer.store.resource_version == 11)
    assert ear.heard == ["+a!", "+odd!", "~odd:2>6", "+new", "~a:1>8", "~odd:6>9", "-new", "~a:8>11"]
    named = [
        (entry["key"], entry["version"]) for entry in logs if entry["event"].startswith("an object cannot be read")
    ]
    assert named == [("ns/odd", "2"), ("ns/odd", "6"), ("ns/new", "7"), ("ns/a", "11")]
    assert gauge("unreadable_objects") == 1
    assert informer.store.get("ns/odd") == pod("odd", 9)
    kept = informer.store.get("ns/a") or {}
    assert (kept["metadata"], why_unreadable(kept)) == (
        pod("a", 11)["metadata"],
        "spec: it is nested more than 150 levels deep",
    )


async def test_a_streaming_list_goes_on_past_what_cannot_be_read(server: Any, informer: Informer) -> None:
    odd = {"kind": "BOOKMARK"}
    server.on(
        "stream",
        server.stream(
            frame("ADDED", unreadable("odd", 2)),
            event("ADDED", pod("a", 3)),
            event("BOOKMARK", odd),
            event("BOOKMARK", {"kind": "Pod", "metadata": {"annotations": []}}),
            event("ADDED", pod("x", 4, labels="none", ownerReferences=[7])),
            event("ADDED", {**pod("y", 5), "metadata": {"name": {"odd": 1}, "resourceVersion": "5"}}),
            bookmark(9, end=True),
            then="hang",
        ),
    )
    Ear(informer)
    await run_until(informer, lambda: informer.has_synced)
    assert [seen.what for seen in server.seen] == ["stream"]
    assert sorted(informer.store.keys()) == ["ns/a", "ns/odd", "ns/x"]
    assert (informer.store.get("ns/x") or {})["metadata"] == pod("x", 4)["metadata"]
    assert gauge("unreadable_objects") == 2


@pytest.mark.guarantee("P-35")
async def test_other_tasks_run_between_handlers_that_take_their_time() -> None:
    """A burst of small events that handlers are slow with stalls the loop no more than one of large ones."""
    clock = VirtualClock()
    server = Script(clock)
    informer, heard, at_once = Informer(server, PODS, clock=clock), 0, 0

    def hear(_: Delta) -> None:
        nonlocal heard
        heard += 1
        clock.skip(0.003)

    async def take_turns() -> None:
        nonlocal at_once
        while True:
            before = heard
            await asyncio.sleep(0)
            at_once = max(at_once, heard - before)

    informer.add_event_handler(hear)
    other = asyncio.create_task(take_turns())
    async with running(informer):
        initial = [event("ADDED", pod(f"p{n}", n)) for n in range(1, 41)]
        await server.send_at_once(*initial, bookmark(100, end=True))
        await server.send_at_once(*(event("MODIFIED", pod("p1", 100 + n)) for n in range(1, 41)))
        await eventually(lambda: heard >= 80)
    other.cancel()
    assert 1 <= at_once <= 2
