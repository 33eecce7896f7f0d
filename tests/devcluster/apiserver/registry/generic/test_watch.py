"""Lists, watches and selectors."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, Watch
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, NAMESPACES, PODS
from trainmaster.devcluster.apiserver.selectors import parse_field_selector, parse_label_selector
from trainmaster.devcluster.apiserver.storage import Store


async def put(api: Api, name: str, app: str, namespace: str = "default") -> None:
    obj = {"metadata": {"name": name, "labels": {"app": app}}}
    try:
        await api.create(CONFIGMAPS, obj, namespace=namespace)
    except StatusError:
        await api.update(CONFIGMAPS, obj, namespace=namespace)


async def read(watch: Watch, count: int) -> list[tuple[str, str, int]]:
    events = [await anext(watch) for _ in range(count)]
    return [(event.type, event.object["metadata"]["name"] if event.object else "", event.revision) for event in events]


async def test_lists_follow_their_selectors(api: Api) -> None:
    await put(api, "a", "x")
    await put(api, "b", "y")
    await put(api, "c", "x", namespace="kubeflow")

    def names(**selectors: Any) -> list[str]:
        return [record.metadata["name"] for record in api.list(CONFIGMAPS, **selectors)[0]]

    assert names() == ["a", "b", "c"]
    assert names(namespace="default") == ["a", "b"]
    assert names(labels=parse_label_selector("app in (x)")) == ["a", "c"]
    assert names(fields=parse_field_selector("metadata.name!=a,metadata.namespace=default")) == ["b"]
    assert api.list(CONFIGMAPS)[1] == api.revision


async def test_pods_are_selected_by_node_and_phase(api: Api) -> None:
    spec = {"containers": [{"name": "a", "image": "x"}]}
    await api.create(PODS, {"metadata": {"name": "p"}, "spec": {**spec, "nodeName": "n"}}, namespace="default")
    await api.create(PODS, {"metadata": {"name": "q"}, "spec": spec}, namespace="default")
    found, _ = api.list(PODS, fields=parse_field_selector("spec.nodeName=,status.phase=Pending"))
    assert [record.metadata["name"] for record in found] == ["q"]


async def test_unknown_field_labels_are_refused(api: Api) -> None:
    with pytest.raises(StatusError, match=r"spec\.color. is not a known field selector") as caught:
        api.list(CONFIGMAPS, fields=parse_field_selector("spec.color=red"))
    assert caught.value.code == 400


@pytest.mark.parametrize("since", [None, 0])
async def test_a_watch_without_a_version_begins_with_what_is_there(api: Api, since: int | None) -> None:
    await put(api, "a", "x")
    first = api.revision
    await put(api, "b", "x")
    watch = api.watch(CONFIGMAPS, since=since, bookmark=True)
    await put(api, "c", "x")
    assert await read(watch, 4) == [
        ("ADDED", "a", first),
        ("ADDED", "b", first + 1),
        ("BOOKMARK", "", first + 1),
        ("ADDED", "c", first + 2),
    ]
    assert watch.revision == api.revision


async def test_a_watch_goes_on_from_a_version(api: Api) -> None:
    await put(api, "a", "x")
    start = api.revision
    await put(api, "b", "x")
    assert await read(api.watch(CONFIGMAPS, since=start), 1) == [("ADDED", "b", start + 1)]


async def test_objects_enter_and_leave_a_selected_watch(api: Api) -> None:
    watch = api.watch(CONFIGMAPS, namespace="default", since=api.revision, labels=parse_label_selector("app=x"))
    base = api.revision
    await put(api, "a", "y")
    await put(api, "a", "x")
    await put(api, "elsewhere", "x", namespace="kubeflow")
    await put(api, "a", "y")
    await put(api, "b", "x")
    await api.delete(CONFIGMAPS, "default", "b")
    assert await read(watch, 4) == [
        ("ADDED", "a", base + 2),
        ("DELETED", "a", base + 4),
        ("ADDED", "b", base + 5),
        ("DELETED", "b", base + 6),
    ]


async def test_an_object_that_leaves_is_shown_as_it_was_with_the_new_version(api: Api) -> None:
    await put(api, "a", "x")
    watch = api.watch(CONFIGMAPS, since=api.revision, labels=parse_label_selector("app=x"))
    await put(api, "a", "y")
    event = await anext(watch)
    assert event.object is not None
    assert event.object["metadata"]["labels"] == {"app": "x"}
    assert event.object["metadata"]["resourceVersion"] == str(api.revision)


async def test_a_bookmark_is_never_ahead_of_what_was_delivered(api: Api) -> None:
    """A client that resumes from a bookmark must not lose the events still on their way."""
    watch = api.watch(CONFIGMAPS, since=api.revision)
    start = api.revision
    await put(api, "a", "x")
    assert watch.revision == start
    await anext(watch)
    await api.create(NAMESPACES, {"metadata": {"name": "other"}})
    assert watch.revision == api.revision


async def test_a_forgotten_version_is_expired() -> None:
    api = Api(Store(history=2), builtin_registry())
    for name in ("a", "b", "c", "d"):
        await api.create(NAMESPACES, {"metadata": {"name": name}})
    with pytest.raises(StatusError, match="too old resource version") as caught:
        api.watch(NAMESPACES, since=1)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


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
