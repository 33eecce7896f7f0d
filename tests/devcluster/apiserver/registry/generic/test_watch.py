"""Lists, watches and selectors; the time to live of events."""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, EVENTS, EVENTS_V1, NAMESPACES
from trainmaster.devcluster.apiserver.storage import Journal, Store
from trainmaster.runtime.jsontree import copy_tree


async def put(api: Api, name: str, app: str, namespace: str = "default") -> None:
    obj = {"metadata": {"name": name, "labels": {"app": app}}}
    try:
        await api.create(CONFIGMAPS, obj, namespace=namespace)
    except StatusError:
        await api.update(CONFIGMAPS, obj, namespace=namespace)


async def test_a_bookmark_is_never_ahead_of_what_was_delivered(api: Api) -> None:
    """A client that resumes from a bookmark must not lose the events still on their way."""
    watch = api.watch(CONFIGMAPS, since=api.revision)
    start = api.revision
    await put(api, "a", "x")
    assert watch.revision == start
    await anext(watch)
    await api.create(NAMESPACES, {"metadata": {"name": "other"}})
    assert watch.revision == api.revision


async def test_a_watch_from_a_version_of_the_future_is_silent_until_it_comes(api: Api) -> None:
    future = api.revision + 2
    async with api.watch(CONFIGMAPS, since=future) as watch:
        for name in ("a", "b"):
            assert watch.revision == 0
            await put(api, name, "x")
        assert api.revision == future
        assert watch.take() is None
        assert watch.revision == future
        await put(api, "c", "x")
        event = watch.take()
    assert event is not None
    assert event.object is not None
    assert (event.type, event.object["metadata"]["name"], event.revision) == ("ADDED", "c", future + 1)


async def test_a_closed_watch_ends(api: Api) -> None:
    await put(api, "a", "x")
    async with api.watch(CONFIGMAPS, since=None) as watch:
        assert (await anext(watch)).type == "ADDED"
    assert [event async for event in watch] == []


def old_style(name: str = "old") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "hello",
        "reason": "Pulled",
        "type": "Normal",
        "source": {"component": "kubelet"},
    }


async def test_events_live_for_an_hour_after_their_last_write(api: Api, clock: Any) -> None:
    await api.create(EVENTS, old_style("first"), namespace="default")
    made = copy_tree(await api.create(EVENTS, old_style("second"), namespace="default"))
    clock.advance(minutes=30)
    await api.update(EVENTS, {**made, "count": 2}, namespace="default")
    clock.advance(minutes=30)
    watch = api.watch(EVENTS, since=api.revision - 1)
    assert [record.metadata["name"] for record in api.list(EVENTS)[0]] == ["second"]
    clock.advance(minutes=30)
    assert api.list(EVENTS_V1)[0] == []
    watch.close()


async def test_events_grow_old_across_restarts(tmp_path: Any, clock: Any) -> None:
    store = Store(journal=Journal(tmp_path / "journal"))
    api = Api(store, builtin_registry(), clock=clock)
    await api.create(NAMESPACES, {"metadata": {"name": "default"}})
    await api.create(EVENTS, {**old_style(), "lastTimestamp": "2026-01-02T03:04:05Z"}, namespace="default")
    store.close()
    clock.advance(minutes=59)
    store = Store(journal=Journal(tmp_path / "journal"))
    api = Api(store, builtin_registry(), clock=clock)
    assert len(api.list(EVENTS)[0]) == 1
    clock.advance(minutes=1)
    assert api.list(EVENTS)[0] == []
    store.close()
