"""Watches: events, where they start, bookmarks, selectors, and how they end."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.commands import TIMEOUT
from support.conformance import Client, Collection, WatchRefused, definition, installed, unique
from support.samples import configmap, secret, widget

from trainmaster.runtime.jsontree import JsonObject

FIRST = {"labelSelector": "w=1"}
"""Selects the objects of the tests: a real cluster puts a ConfigMap of its own into each namespace."""


def _watched(name: str, **data: str) -> JsonObject:
    return configmap(name, data, labels={"w": "1"})


@asynccontextmanager
async def _from_now(collection: Collection, **query: Any) -> Any:
    version = (await collection.list()).ok(200)["metadata"]["resourceVersion"]
    async with collection.watch(resourceVersion=version, **query) as stream:
        yield stream


async def test_every_change_is_an_event_with_the_whole_object(configmaps: Collection) -> None:
    """A deletion shows the last state, at the version of the deletion; a write that changes nothing is no event."""
    async with _from_now(configmaps, **FIRST) as stream:
        made = await configmaps.made(_watched("a"))
        changed = (await configmaps.patch("a", {"data": {"x": "1"}})).ok(200)
        await configmaps.patch("a", {"data": {"x": "1"}})
        await configmaps.delete("a")
        events = [await stream.next() for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"] for event in events[:2]] == [made, changed]
    assert events[2]["object"]["data"] == {"x": "1"}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


async def test_a_finalizer_makes_a_deletion_two_events(configmaps: Collection) -> None:
    obj = _watched("a")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    await configmaps.made(obj)
    async with _from_now(configmaps, **FIRST) as stream:
        await configmaps.delete("a")
        event = await stream.next()
        assert (event["type"], "deletionTimestamp" in event["object"]["metadata"]) == ("MODIFIED", True)
        await configmaps.patch("a", {"metadata": {"finalizers": None}})
        assert await stream.take(1) == [("DELETED", "a")]


async def test_a_watch_goes_on_from_a_version(configmaps: Collection) -> None:
    version = (await configmaps.made(_watched("a")))["metadata"]["resourceVersion"]
    await configmaps.made(_watched("b"))
    await configmaps.delete("a")
    async with configmaps.watch(resourceVersion=version, **FIRST) as stream:
        assert await stream.take(2) == [("ADDED", "b"), ("DELETED", "a")]


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_from_nowhere_starts_with_what_is_there(configmaps: Collection, version: str) -> None:
    """With version 0 the present objects may be an older state, which the following events bring up to date."""
    for name in ("a", "b"):
        await configmaps.made(_watched(name))
    query = {"resourceVersion": version} if version else {}
    async with configmaps.watch(**FIRST, **query) as stream:
        assert sorted(await stream.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await configmaps.made(_watched("c"))
        assert await stream.take(1) == [("ADDED", "c")]


async def test_a_watch_stays_in_its_namespace(client: Client, secrets: Collection, configmaps: Collection) -> None:
    marker = unique("watch")
    async with _from_now(configmaps) as stream:
        await secrets.made(secret("a"))
        await client.collection("v1", "configmaps", "default").made(configmap(marker))
        try:
            await configmaps.made(configmap("a"))
            while (name := (await stream.next())["object"]["metadata"]["name"]) != "a":
                assert name == "kube-root-ca.crt"
        finally:
            await client.collection("v1", "configmaps", "default").delete(marker)


async def test_all_namespaces_are_watched_at_once(client: Client, configmaps: Collection, namespace: str) -> None:
    everywhere = client.collection("v1", "configmaps")
    async with _from_now(everywhere, labelSelector=f"all={namespace}") as stream:
        await configmaps.made(configmap("a", labels={"all": namespace}))
        assert (await stream.next())["object"]["metadata"]["namespace"] == namespace


async def test_one_object_is_watched_by_its_name(configmaps: Collection) -> None:
    async with _from_now(configmaps, fieldSelector="metadata.name=b") as stream:
        for name in ("a", "b"):
            await configmaps.made(_watched(name))
        assert await stream.take(1) == [("ADDED", "b")]


async def test_the_path_of_an_object_cannot_be_watched(configmaps: Collection) -> None:
    """The parameter is ignored: the answer is the object."""
    obj = await configmaps.made(_watched("a"))
    answer = await configmaps.client.send("GET", configmaps.at("a"), watch="true", timeoutSeconds="1")
    assert answer.ok(200) == obj


async def test_an_object_is_added_when_it_starts_to_match_and_no_other_is_seen(configmaps: Collection) -> None:
    for name in ("a", "b"):
        await configmaps.made(configmap(name))
    async with _from_now(configmaps, **FIRST) as stream:
        await configmaps.patch("b", {"data": {"x": "1"}})
        await configmaps.delete("b")
        await configmaps.patch("a", {"metadata": {"labels": {"w": "1"}}})
        assert await stream.take(1) == [("ADDED", "a")]


async def test_an_object_that_stops_to_match_is_deleted(configmaps: Collection) -> None:
    """It comes with the state that still matched, at the version of the change."""
    old = await configmaps.made(_watched("a", x="1"))
    async with _from_now(configmaps, **FIRST) as stream:
        new = (await configmaps.patch("a", {"metadata": {"labels": {"w": "2"}}, "data": {"x": "2"}})).ok(200)
        event = await stream.next()
    assert (event["type"], event["object"]["data"]) == ("DELETED", old["data"])
    assert event["object"]["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]


async def test_a_watch_ends_at_its_timeout(configmaps: Collection) -> None:
    async with configmaps.watch(timeoutSeconds=1, **FIRST) as stream:
        assert await stream.rest() == []


async def test_headers_come_before_the_first_event(configmaps: Collection) -> None:
    async with asyncio.timeout(TIMEOUT), _from_now(configmaps, **FIRST) as stream:
        assert stream.response.headers["Content-Type"].startswith("application/json")


async def test_a_watch_from_before_the_history_says_so(client: Client, namespace: str) -> None:
    """As the first event, or as the status of the answer. The resource did not exist at version 1."""
    async with installed(client, definition({"type": "object"}), namespace=namespace) as things:
        answer = await client.send("GET", things.path, watch="true", resourceVersion="1", timeoutSeconds="5")
    if answer.status == 410:
        answer.refused(410)
        return
    assert answer.status == 200
    event = answer.json
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert "too old resource version: 1 (" in status["message"]


async def test_a_watch_from_a_version_of_the_future_waits(configmaps: Collection) -> None:
    """Neither the changes before that version nor bookmarks come."""
    future = int((await configmaps.list()).ok(200)["metadata"]["resourceVersion"]) + 1_000_000
    query = {"resourceVersion": future, "timeoutSeconds": 3, "allowWatchBookmarks": "true"}
    async with configmaps.watch(**FIRST, **query) as stream:
        assert stream.response.status == 200
        await configmaps.made(_watched("a"))
        assert await stream.rest() == []


async def test_a_version_that_is_no_number_is_refused(configmaps: Collection) -> None:
    """Tolerance: by 400, 422 or, in some versions, 500."""
    answer = await configmaps.client.send("GET", configmaps.path, watch="true", resourceVersion="abc")
    assert answer.status in {400, 422, 500}


@pytest.mark.parametrize("flag", ["1", "true", "True", "t"])
async def test_the_ways_to_say_yes(configmaps: Collection, flag: str) -> None:
    async with _from_now(configmaps, watch=flag, **FIRST) as stream:
        await configmaps.made(_watched("a"))
        assert await stream.take(1) == [("ADDED", "a")]


def _initial(**query: str) -> dict[str, str]:
    return {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", **query}


@asynccontextmanager
async def _streaming_list(collection: Collection, **query: str) -> Any:
    """Open a watch that starts with the present objects.

    Tolerance: a server before 1.34 may have the gate WatchList off; it refuses, and clients fall back to a list.
    """
    try:
        async with collection.watch(**_initial(**query)) as stream:
            yield stream
    except WatchRefused as refused:
        if "WatchList feature gate" not in refused.answer.refused(422, "Invalid")["message"]:
            raise
        pytest.skip("the server has no streaming lists")


async def test_the_initial_events_end_with_a_bookmark_from_which_a_watch_goes_on(widgets: Collection) -> None:
    for name in ("a", "b"):
        await widgets.made(widget(name))
    async with _streaming_list(widgets, allowWatchBookmarks="true") as stream:
        assert sorted(await stream.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        event = await stream.next()
        await widgets.made(widget("c"))
        assert await stream.take(1) == [("ADDED", "c")]
    assert event["type"] == "BOOKMARK"
    assert event["object"]["kind"] == "Widget"
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert event["object"]["metadata"]["resourceVersion"].isdigit()
    async with widgets.watch(resourceVersion=event["object"]["metadata"]["resourceVersion"]) as stream:
        assert await stream.take(1) == [("ADDED", "c")]


async def test_an_empty_streaming_list_is_just_the_bookmark(widgets: Collection) -> None:
    async with _streaming_list(widgets, allowWatchBookmarks="true") as stream:
        assert (await stream.next())["type"] == "BOOKMARK"


async def test_a_streaming_list_is_not_older_than_asked_for(widgets: Collection) -> None:
    version = (await widgets.made(widget("a")))["metadata"]["resourceVersion"]
    async with _streaming_list(widgets, allowWatchBookmarks="true", resourceVersion=version) as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        bookmark = await stream.skip_to("BOOKMARK")
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(version)


async def test_initial_events_obey_the_selector(configmaps: Collection) -> None:
    await configmaps.made(_watched("a"))
    await configmaps.made(configmap("b", labels={"w": "2"}))
    async with _streaming_list(configmaps, allowWatchBookmarks="true", **FIRST) as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        assert (await stream.next())["type"] == "BOOKMARK"


async def test_initial_events_without_bookmarks_are_just_events(configmaps: Collection) -> None:
    await configmaps.made(_watched("a"))
    async with _streaming_list(configmaps, **FIRST) as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        await configmaps.made(_watched("b"))
        assert await stream.take(1) == [("ADDED", "b")]


async def test_no_initial_events_means_from_now_on(configmaps: Collection) -> None:
    await configmaps.made(_watched("a"))
    async with _streaming_list(configmaps, **FIRST | {"sendInitialEvents": "false"}) as stream:
        await configmaps.made(_watched("b"))
        assert await stream.take(1) == [("ADDED", "b")]


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "NotOlderThan"},
    ],
)
async def test_options_that_do_not_fit_are_refused(configmaps: Collection, query: dict[str, Any]) -> None:
    answer = await configmaps.client.send("GET", configmaps.path, watch="true", **query)
    assert "resourceVersionMatch" in {field for field, _ in answer.causes()}


async def test_a_bookmark_comes_shortly_before_the_timeout(configmaps: Collection) -> None:
    """The next watch starts from it (KEP-956); that is how clients outlive the history of a quiet resource."""
    async with _from_now(configmaps, allowWatchBookmarks="true", timeoutSeconds=4, **FIRST) as stream:
        bookmark = await stream.skip_to("BOOKMARK")
    obj = bookmark["object"]
    assert (obj["kind"], obj["apiVersion"], obj.get("data")) == ("ConfigMap", "v1", None)
    assert obj["metadata"]["resourceVersion"].isdigit()
    assert not obj["metadata"].get("name")


async def test_no_bookmark_comes_to_who_did_not_ask(configmaps: Collection) -> None:
    async with _from_now(configmaps, timeoutSeconds=3, **FIRST) as stream:
        assert await stream.rest() == []
