"""Lists, watches and selectors."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, NAMESPACES


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
