"""Informers against a server that misbehaves byte by byte; the store and the handlers are what counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
from structlog.testing import capture_logs

from trainmaster.controller.kube.client import KubeClient
from trainmaster.controller.kube.configuration import ClusterAccess
from trainmaster.controller.kube.informing import Informer, Tombstone, final_state
from trainmaster.controller.kube.resources import JOBSETS, PODS
from trainmaster.runtime.jsontree import JsonObject

Until: TypeAlias = Callable[[Callable[[], object]], Awaitable[None]]


def pod(name: str, version: int, **extra: Any) -> JsonObject:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | extra}


def event(kind: str, obj: JsonObject) -> JsonObject:
    return {"type": kind, "object": obj}


def bookmark(version: int, *, end: bool = False) -> JsonObject:
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if end else {}
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version), **annotations}})


def pod_list(version: int, *pods: JsonObject, **metadata: str) -> JsonObject:
    items = [{key: value for key, value in item.items() if key not in {"kind", "apiVersion"}} for item in pods]
    return {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(version), **metadata},
        "items": items,
    }


class Ear:
    """A handler that writes down what it hears."""

    def __init__(self, informer: Informer) -> None:
        self.heard: list[str] = []
        self.deleted: list[JsonObject | Tombstone] = []
        self.sizes: list[int] = []
        self.informer = informer
        self.remove = informer.add_handler(on_add=self.added, on_update=self.updated, on_delete=self.gone)

    def note(self, text: str) -> None:
        self.heard.append(text)
        self.sizes.append(len(self.informer.store))

    def added(self, obj: JsonObject, initial: bool) -> None:
        self.note(f"+{obj['metadata']['name']}{'!' if initial else ''}")

    def updated(self, old: JsonObject, new: JsonObject) -> None:
        versions = old["metadata"]["resourceVersion"], new["metadata"]["resourceVersion"]
        self.note(f"~{new['metadata']['name']}:{'>'.join(versions)}")

    def gone(self, obj: JsonObject | Tombstone) -> None:
        self.deleted.append(obj)
        self.note(f"-{final_state(obj)['metadata']['name']}")


@asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()


@pytest.fixture
def informer(client: KubeClient, clock: Any) -> Informer:
    return Informer(client, PODS, clock=clock, random=lambda: 0.0)


async def test_streaming_list_then_events_on_the_same_stream(server: Any, informer: Informer, until: Until) -> None:
    """R-2, R-3, R-4, S-13"""
    server.on(
        "stream",
        server.stream(
            event("ADDED", pod("b", 7)),
            event("ADDED", pod("a", 3)),
            bookmark(9, end=True),
            event("MODIFIED", pod("a", 10)),
            event("DELETED", pod("b", 11)),
            bookmark(20),
            then="hang",
        ),
    )
    ear = Ear(informer)
    async with running(informer):
        await until(lambda: informer.store.resource_version == 20)
    assert ear.heard == ["+b!", "+a!", "~a:3>10", "-b"]
    assert ear.sizes == [2, 2, 2, 1]
    assert ear.deleted == [pod("b", 11)]
    assert [seen.what for seen in server.seen] == ["stream"]
    query = server.seen[0].query
    assert query["resourceVersionMatch"] == "NotOlderThan"
    assert query["allowWatchBookmarks"] == "true"
    assert query["timeoutSeconds"] == "300"
    assert "resourceVersion" not in query


async def test_nothing_is_visible_before_the_snapshot_is_complete(
    server: Any, informer: Informer, until: Until
) -> None:
    """R-3"""
    sent = asyncio.Event()
    server.on("stream", server.stream(event("ADDED", pod("a", 1)), then="hang", before=sent.set))
    async with running(informer):
        await asyncio.wait_for(sent.wait(), 5)
        await until(lambda: server.open_streams == 1)
        assert len(informer.store) == 0
        assert not informer.has_synced


async def test_streaming_list_closed_early_leaves_no_trace(server: Any, informer: Informer, until: Until) -> None:
    """R-5: the half that arrived is thrown away, and this attempt takes a list."""
    server.on("stream", server.stream(event("ADDED", pod("ghost", 1)), bookmark(2)))
    server.on("list", server.reply(200, pod_list(5, pod("a", 3))))
    ear = Ear(informer)
    async with running(informer):
        await asyncio.wait_for(informer.wait_synced(), 5)
        await until(lambda: server.requests("watch"))
    assert ear.heard == ["+a!"]
    assert server.requests("watch")[0].query["resourceVersion"] == "5"


@pytest.mark.parametrize("code", [400, 403, 405, 410, 422, 500, 501, 504])
async def test_server_without_streaming_lists(server: Any, informer: Informer, until: Until, code: int) -> None:
    """R-1: any refusal falls back to a list at once, without a wait."""
    server.on("stream", server.status(code, "Whatever"))
    server.on("list", server.reply(200, pod_list(5, pod("a", 3))))
    async with running(informer):
        await until(lambda: server.requests("watch"))
    assert informer.store.keys() == ["ns/a"]
    assert informer.store.get("ns/a") == pod("a", 3), "items get the kind that only their list states"
    assert informer._clock.slept == []  # type: ignore[attr-defined] # the test's clock
    (listed,) = server.requests("list")
    assert listed.query == {"resourceVersion": "0", "limit": "500"}


async def test_version_is_that_of_the_list(server: Any, informer: Informer, until: Until) -> None:
    """R-13, S-7"""
    server.on("list", server.reply(200, pod_list(5, pod("a", 30))))
    async with running(informer):
        await until(lambda: server.requests("watch"))
    assert server.requests("watch")[0].query["resourceVersion"] == "5"
    assert informer.store.resource_version == 5


async def test_pages_are_joined(server: Any, informer: Informer, until: Until) -> None:
    """R-9: a continuation names no version."""
    first = pod_list(5, pod("a", 1), **{"continue": "next"})
    server.on("list", server.reply(200, first), server.reply(200, pod_list(5, pod("b", 2))))
    async with running(informer):
        await until(lambda: informer.has_synced)
    assert informer.store.keys() == ["ns/a", "ns/b"]
    assert server.requests("list")[1].query == {"limit": "500", "continue": "next"}


async def test_expired_continuation_takes_the_whole_list(server: Any, informer: Informer, until: Until) -> None:
    """R-10"""
    first = pod_list(5, pod("a", 1), **{"continue": "next"})
    whole = server.reply(200, pod_list(6, pod("b", 2)))
    server.on("list", server.reply(200, first), server.status(410, "Expired"), whole)
    async with running(informer):
        await until(lambda: informer.has_synced)
    assert informer.store.keys() == ["ns/b"]
    assert server.requests("list")[2].query == {"resourceVersion": "0"}


@pytest.mark.parametrize("refusal", ["gone", "too large"])
async def test_unusable_version_goes_to_a_quorum_list(
    server: Any, informer: Informer, until: Until, refusal: str
) -> None:
    """R-8, R-11, R-12, R-26: first at the last version, then at once without one."""
    server.on(
        "list",
        server.reply(200, pod_list(5, pod("a", 1))),
        server.status(410, "Expired")
        if refusal == "gone"
        else server.status(504, "Timeout", "Too large resource version"),
        server.reply(200, pod_list(9, pod("b", 8))),
    )
    server.on("watch", server.stream(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})))
    async with running(informer):
        await until(lambda: len(server.requests("watch")) == 2)
    versions = [seen.query.get("resourceVersion") for seen in server.requests("list")]
    assert versions == ["0", "5", None]
    assert informer.store.keys() == ["ns/b"]
    assert server.requests("watch")[1].query["resourceVersion"] == "9"


async def test_410_when_a_watch_is_opened(server: Any, informer: Informer, until: Until) -> None:
    """R-28, R-31: the same version is not tried for ever."""
    server.on("list", *(server.reply(200, pod_list(version, pod("a", 1))) for version in (5, 8)))
    server.on("watch", server.status(410, "Gone"))
    async with running(informer):
        await until(lambda: len(server.requests("watch")) == 2)
    assert [seen.query["resourceVersion"] for seen in server.requests("watch")] == ["5", "8"]


async def test_clean_end_reopens_without_a_list(server: Any, informer: Informer, clock: Any, until: Until) -> None:
    """R-21, R-22, R-23: from the last bookmark or event; a long quiet watch is no failure."""
    server.on("list", server.reply(200, pod_list(5)))
    server.on(
        "watch",
        server.stream(event("ADDED", pod("a", 6))),
        server.stream(bookmark(15)),
        server.stream(before=lambda: setattr(clock, "pushed", clock.pushed + 300)),
    )
    async with running(informer):
        await until(lambda: len(server.requests("watch")) == 4)
    assert [seen.query["resourceVersion"] for seen in server.requests("watch")] == ["5", "6", "15", "15"]
    assert len(server.requests("list")) == 1
    assert clock.slept == []


async def test_watch_that_ends_at_once_backs_off(server: Any, informer: Informer, clock: Any, until: Until) -> None:
    """R-24, R-27: a broken proxy must not make a hot loop."""
    server.on("list", *(server.reply(200, pod_list(5)) for _ in range(20)))
    server.on("watch", *(server.stream() for _ in range(20)))
    async with running(informer):
        await until(lambda: len(clock.slept) >= 7)
    assert clock.slept[:7] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0])


async def test_repeated_bookmark_is_no_progress(server: Any, informer: Informer, clock: Any, until: Until) -> None:
    """R-24"""
    server.on("list", *(server.reply(200, pod_list(5)) for _ in range(5)))
    server.on("watch", *(server.stream(bookmark(5)) for _ in range(5)))
    async with running(informer):
        await until(lambda: len(clock.slept) >= 3)


async def test_jitter_only_adds(client: KubeClient, server: Any, clock: Any, until: Until) -> None:
    """R-27: the wait is between d and 2d."""
    informer = Informer(client, PODS, clock=clock, random=lambda: 0.5)
    async with running(informer):
        await until(lambda: len(clock.slept) >= 2)
    assert clock.slept[:2] == pytest.approx([1.2, 2.4])


async def test_busy_server_keeps_the_version(server: Any, informer: Informer, clock: Any, until: Until) -> None:
    """R-25, R-26: 429, when opening and in the stream, backs off and lists nothing."""
    server.on("list", server.reply(200, pod_list(5)))
    server.on(
        "watch",
        server.status(429, "TooManyRequests", Retry_After="7"),
        server.stream(event("ERROR", {"kind": "Status", "code": 429, "reason": "TooManyRequests"})),
    )
    async with running(informer):
        await until(lambda: len(server.requests("watch")) == 3)
    assert [seen.query["resourceVersion"] for seen in server.requests("watch")] == ["5", "5", "5"]
    assert clock.slept == pytest.approx([7.0, 1.6])


@pytest.mark.parametrize("fault", ["reset", "truncated", "silent"])
async def test_broken_watch_goes_on_where_it_was(server: Any, clock: Any, until: Until, fault: str) -> None:
    """R-32: no list, nothing lost, nothing twice."""
    server.on("list", server.reply(200, pod_list(5)))
    first = event("ADDED", pod("a", 6))
    server.on(
        "watch",
        {
            "reset": server.stream(first, then="reset"),
            "truncated": server.stream(first, b'{"type":"ADDED","obj'),
            "silent": server.stream(first, then="hang"),
        }[fault],
        server.stream(event("ADDED", pod("b", 7)), then="hang"),
    )
    access = ClusterAccess(server=server.url)
    async with KubeClient(access, user_agent="test", clock=clock, inactivity_limit=0.2) as client:
        informer = Informer(client, PODS, clock=clock)
        ear = Ear(informer)
        async with running(informer):
            await until(lambda: len(informer.store) == 2)
    assert ear.heard == ["+a", "+b"]
    assert server.requests("watch")[1].query["resourceVersion"] == "6"
    assert len(server.requests("list")) == 1


async def test_relist_is_told_as_differences(server: Any, informer: Informer, until: Until) -> None:
    """S-2, S-3, S-15: the store changes first; unchanged objects are silent, vanished ones come as tombstones."""
    server.on(
        "list",
        server.reply(200, pod_list(5, pod("same", 1), pod("changed", 2), pod("gone", 3))),
        server.reply(200, pod_list(9, pod("same", 1), pod("changed", 8), pod("new", 7))),
    )
    server.on("watch", server.stream(event("ERROR", {"kind": "Status", "code": 410})))
    ear = Ear(informer)
    async with running(informer):
        await until(lambda: len(server.requests("watch")) == 2)
    assert ear.heard == ["+same!", "+changed!", "+gone!", "-gone", "~changed:2>8", "+new"]
    assert ear.deleted == [Tombstone("ns/gone", pod("gone", 3))]
    assert ear.sizes == [3] * 6


async def test_recreation_under_one_name_is_an_update(server: Any, informer: Informer, until: Until) -> None:
    """S-4"""
    server.on(
        "list", server.reply(200, pod_list(5, pod("a", 1))), server.reply(200, pod_list(9, pod("a", 8, uid="other")))
    )
    server.on("watch", server.stream(event("ERROR", {"kind": "Status", "code": 410})))
    uids: list[tuple[str, str]] = []
    informer.add_handler(on_update=lambda old, new: uids.append((old["metadata"]["uid"], new["metadata"]["uid"])))
    async with running(informer):
        await until(lambda: len(server.requests("watch")) == 2)
    assert uids == [("uid-a", "other")]


async def test_late_handler_hears_everything_once(server: Any, informer: Informer, until: Until) -> None:
    """S-11"""
    more = asyncio.Event()

    async def answer(request: Any) -> Any:
        await more.wait()
        return await server.stream(event("MODIFIED", pod("a", 6)), then="hang")(request)

    server.on("list", server.reply(200, pod_list(5, pod("a", 1), pod("b", 2))))
    server.on("watch", answer)
    async with running(informer):
        await until(lambda: server.requests("watch"))
        ear = Ear(informer)
        assert ear.heard == ["+a!", "+b!"]
        more.set()
        await until(lambda: informer.store.resource_version == 6)
        assert ear.heard == ["+a!", "+b!", "~a:1>6"]


async def test_handler_added_during_a_delivery_hears_nothing_twice(
    server: Any, informer: Informer, until: Until
) -> None:
    """S-11: the delivery of a large snapshot pauses for other tasks, and one of them adds a handler."""
    server.on("list", server.reply(200, pod_list(5, *(pod(f"p{number}", number) for number in range(1, 1001)))))
    late: list[Ear] = []

    def added(obj: JsonObject, initial: bool) -> None:
        if obj["metadata"]["name"] == "p150":
            asyncio.get_running_loop().call_soon(lambda: late.append(Ear(informer)))

    informer.add_handler(on_add=added)
    async with running(informer):
        await until(lambda: informer.has_synced)
        assert not informer.store.get("ns/p1001")
    (ear,) = late
    assert len(ear.heard) == 1000
    assert len(set(ear.heard)) == 1000


async def test_removed_handler_hears_nothing_more(server: Any, informer: Informer, until: Until) -> None:
    server.on("list", server.reply(200, pod_list(5, pod("a", 1))))
    ear = Ear(informer)
    ear.remove()
    async with running(informer):
        await until(lambda: informer.has_synced)
    assert ear.heard == []


async def test_failing_handler_harms_nobody(server: Any, informer: Informer, until: Until) -> None:
    """S-10"""

    def fail(obj: JsonObject, initial: bool) -> None:
        raise RuntimeError("handler bug")

    informer.add_handler(on_add=fail)
    ear = Ear(informer)
    server.on("list", server.reply(200, pod_list(5, pod("a", 1))))
    with capture_logs() as logs:
        async with running(informer):
            await until(lambda: informer.has_synced)
    assert ear.heard == ["+a!"]
    assert [entry["key"] for entry in logs if entry["event"] == "handler failed"] == ["ns/a"]


async def test_managed_fields_are_dropped(server: Any, informer: Informer, until: Until) -> None:
    """S-17: from lists and from events."""
    server.on("list", server.reply(200, pod_list(5, pod("a", 1, managedFields=[{}]))))
    server.on("watch", server.stream(event("ADDED", pod("b", 6, managedFields=[{}])), then="hang"))
    async with running(informer):
        await until(lambda: len(informer.store) == 2)
    assert informer.store.list() == [pod("a", 1), pod("b", 6)]


async def test_foreign_objects_are_skipped(server: Any, informer: Informer, until: Until) -> None:
    """R-29"""
    odd = {"kind": "Node", "metadata": {"name": "n", "resourceVersion": "6"}}
    server.on("list", server.reply(200, pod_list(5)))
    server.on("watch", server.stream(event("ADDED", odd), event("ADDED", pod("a", 7)), then="hang"))
    async with running(informer):
        await until(lambda: len(informer.store))
    assert informer.store.keys() == ["ns/a"]


@pytest.mark.parametrize(
    "answer",
    [{"kind": "Table", "metadata": {}, "rows": []}, {"kind": "PodList", "items": 5, "metadata": {}}, {}, []],
)
async def test_answer_that_is_no_list(server: Any, informer: Informer, clock: Any, until: Until, answer: Any) -> None:
    """R-14: not an empty collection."""
    server.on("list", server.reply(200, answer), server.reply(200, pod_list(5, pod("a", 1))))
    async with running(informer):
        await until(lambda: informer.has_synced)
    assert informer.store.keys() == ["ns/a"]
    assert len(clock.slept) == 1


async def test_missing_resource_type_is_waited_for(server: Any, client: KubeClient, clock: Any, until: Until) -> None:
    """E-7: a CRD that is installed later; one warning, not one for each try."""
    informer = Informer(client, JOBSETS, clock=clock)
    installed = False

    async def answer(request: Any) -> Any:
        return await (server.reply(200, pod_list(5)) if installed else server.status(404, "NotFound"))(request)

    server.on("stream", *[server.status(404, "NotFound")] * 200)
    server.on("list", *[answer] * 200)
    with capture_logs() as logs:
        async with running(informer):
            await until(lambda: len(clock.slept) >= 3)
            assert not informer.has_synced
            installed = True
            await until(lambda: informer.has_synced)
    levels = [entry["log_level"] for entry in logs if entry["event"].startswith("collection")]
    assert levels[0] == "warning"
    assert set(levels[1:-1]) == {"debug"}
    assert levels[-1] == "info"


async def test_server_that_is_down_at_the_start(server: Any, clock: Any, until: Until, unused_tcp_port: int) -> None:
    """R-25: keeps trying; streaming or not makes no difference to a refused connection."""
    access = ClusterAccess(server=f"http://127.0.0.1:{unused_tcp_port}")
    async with KubeClient(access, user_agent="test", clock=clock, tries=1) as client:
        informer = Informer(client, PODS, clock=clock)
        server.on("list", server.reply(200, pod_list(5, pod("a", 1))))
        async with running(informer):
            await until(lambda: len(clock.slept) >= 3)
            assert not informer.has_synced
            access.server = server.url
            await until(lambda: informer.has_synced)


async def test_duplicate_event_is_not_told_twice(server: Any, informer: Informer, until: Until) -> None:
    """S-15"""
    server.on("list", server.reply(200, pod_list(5, pod("a", 4))))
    server.on(
        "watch", server.stream(event("ADDED", pod("a", 4)), event("DELETED", pod("x", 6)), bookmark(9), then="hang")
    )
    ear = Ear(informer)
    async with running(informer):
        await until(lambda: informer.store.resource_version == 9)
    assert ear.heard == ["+a!"]
