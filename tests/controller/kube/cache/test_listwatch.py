"""Lists and watches as one collection, lists by a watch, and lists that are decoded in steps."""

import asyncio
import json
from typing import Any
from unittest.mock import AsyncMock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.commands import TIMEOUT
from support.informers import Ear, Script, Until, bookmark, event, failure, pod, pod_list, run_until, running
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.cache import snapshot
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.cache.listwatch import Collection
from trainmaster.controller.kube.cache.snapshot import ListBody, list_collection
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import MalformedResponse
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.jsontree import UNREADABLE


@pytest.mark.guarantee("R-1", "R-8", "R-13", "S-7")
@pytest.mark.parametrize("code", [400, 403, 410, 504])
async def test_without_streaming_lists_a_list_is_taken(server: Any, informer: Informer, clock: Any, code: int) -> None:
    """Any refusal falls back to a list at once, without a wait."""
    server.on("stream", server.status(code, "Whatever"))
    server.on("list", server.reply(200, pod_list(5, pod("a", 30))))
    await run_until(informer, lambda: server.requests("watch"))
    assert informer.store.keys() == ["ns/a"]
    assert server.requests("watch")[0].query["resourceVersion"] == "5", "that of the list"
    assert informer.store.resource_version == 5
    assert informer.store.get("ns/a") == pod("a", 30), "items get the kind that only their list states"
    assert clock.slept == []
    (listed,) = server.requests("list")
    assert listed.query == {"limit": "500"}


@pytest.mark.guarantee("R-9")
async def test_pages_are_joined(server: Any, informer: Informer) -> None:
    """A continuation names no version."""
    first = pod_list(5, pod("a", 1), **{"continue": "next"})
    server.on("list", server.reply(200, first), server.reply(200, pod_list(5, pod("b", 2))))
    await run_until(informer, lambda: informer.has_synced)
    assert informer.store.keys() == ["ns/a", "ns/b"]
    assert server.requests("list")[1].query == {"limit": "500", "continue": "next"}


@pytest.mark.guarantee("R-10")
async def test_an_expired_continuation_takes_the_whole_list(server: Any, informer: Informer) -> None:
    first = pod_list(5, pod("a", 1), **{"continue": "next"})
    whole = server.reply(200, pod_list(6, pod("b", 2)))
    server.on("list", server.reply(200, first), server.status(410, "Expired"), whole)
    await run_until(informer, lambda: informer.has_synced)
    assert informer.store.keys() == ["ns/b"]
    assert server.requests("list")[2].query == {}


@pytest.mark.guarantee("R-10")
@pytest.mark.parametrize("tokens", [("next", "next"), ("a", "b", "c", "a"), ("next", "", "next", "")])
async def test_a_list_that_never_ends_is_an_error(
    server: Any, informer: Informer, clock: Any, until: Until, tokens: tuple[str, ...]
) -> None:
    """A token comes again, or the whole is continued like its pages: the next try comes after a wait."""
    expired = server.status(410, "Expired")
    answers = [
        server.reply(200, pod_list(5, pod("a", 1), **{"continue": token})) if token else expired for token in tokens
    ]
    server.on("list", *answers, server.reply(200, pod_list(5, pod("a", 1))))
    async with running(informer):
        await until(lambda: informer.has_synced)
    assert len(server.requests("list")) == len(answers) + 1
    assert clock.slept == [pytest.approx(0.8)]


@pytest.mark.guarantee("R-8", "R-11", "R-12", "R-26")
@pytest.mark.parametrize("refusal", ["gone", "too large", "too large, said as a cause"])
async def test_an_unusable_version_goes_to_a_quorum_list(server: Any, informer: Informer, refusal: str) -> None:
    """First at the last version, then at once without one."""
    refusals = {
        "gone": server.status(410, "Expired"),
        "too large": server.status(504, "Timeout", "Too large resource version"),
        "too large, said as a cause": server.reply(
            504, {"kind": "Status", "code": 504, "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}
        ),
    }
    server.on(
        "list",
        server.reply(200, pod_list(5, pod("a", 1))),
        refusals[refusal],
        server.reply(200, pod_list(9, pod("b", 8))),
    )
    server.on("watch", server.stream(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})))
    await run_until(informer, lambda: len(server.requests("watch")) == 2)
    queries = [seen.query for seen in server.requests("list")]
    assert queries == [{"limit": "500"}, {"resourceVersion": "5"}, {"limit": "500"}], "at a version nothing is paged"
    assert informer.store.keys() == ["ns/b"]
    assert server.requests("watch")[1].query["resourceVersion"] == "9"


@pytest.mark.guarantee("R-9", "R-11")
async def test_a_list_that_takes_too_long_is_paged(server: Any, informer: Informer, clock: Any, until: Until) -> None:
    """Over a slow line the next one at that version would take as long: only shorter answers get anywhere."""
    server.on("list", server.reply(200, pod_list(5)), server.stream(b"{", then="hang"), server.reply(200, pod_list(9)))
    server.on("watch", server.stream(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})))
    async with running(informer):
        await until(lambda: server.open_streams == 1 and len(server.requests("list")) == 2)
        clock.step(5)
        await until(lambda: len(server.requests("watch")) == 2)
    asked = [(seen.query.get("resourceVersion"), seen.query.get("limit")) for seen in server.requests("list")]
    assert asked == [(None, "500"), ("5", None), (None, "500")]


@pytest.mark.guarantee("R-14")
@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "Table", "metadata": {"resourceVersion": "5"}, "rows": []},
        {"kind": "PodList", "metadata": {"resourceVersion": "5"}},
        {"kind": "PodList", "items": [5], "metadata": {"resourceVersion": "5"}},
        {"kind": "PodList", "items": [], "metadata": {}},
        [],
        b"gateway says hello",
    ],
)
async def test_an_answer_that_is_no_list_is_not_an_empty_collection(
    server: Any, informer: Informer, clock: Any, answer: Any
) -> None:
    """Not an empty collection."""
    server.on("list", server.reply(200, answer), server.reply(200, pod_list(5, pod("a", 1))))
    await run_until(informer, lambda: informer.has_synced)
    assert informer.store.keys() == ["ns/a"]
    assert len(clock.slept) == 1


@pytest.mark.guarantee("R-10")
async def test_a_410_on_the_first_page_is_an_error(server: Any, informer: Informer, clock: Any) -> None:
    """There is no version to go back to, so the list is not asked for again without a wait."""
    server.on("list", server.status(410, "Expired"), server.reply(200, pod_list(5, pod("a", 1))))
    await run_until(informer, lambda: informer.has_synced)
    assert len(server.requests("list")) == 2
    assert clock.slept == [pytest.approx(0.8)]


@pytest.mark.guarantee("R-2", "R-3", "R-4", "S-13", "T-8")
async def test_a_streaming_list_goes_on_as_the_watch(server: Any, informer: Informer) -> None:
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
    await run_until(informer, lambda: informer.store.resource_version == 20)
    assert ear.heard == ["+b!", "+a!", "~a:3>10", "-b"]
    assert ear.sizes == [2, 2, 2, 1]
    assert ear.deleted == [(pod("b", 11), False)]
    assert [seen.what for seen in server.seen] == ["stream"]
    query = server.seen[0].query
    assert (query["sendInitialEvents"], query["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert query["allowWatchBookmarks"] == "true"
    assert query["timeoutSeconds"] == "300"
    assert "resourceVersion" not in query


@pytest.mark.guarantee("R-3")
async def test_nothing_is_visible_before_the_snapshot_is_whole(server: Any, informer: Informer, until: Until) -> None:
    sent = asyncio.Event()
    server.on("stream", server.stream(event("ADDED", pod("a", 1)), then="hang", before=sent.set))
    async with running(informer):
        await asyncio.wait_for(sent.wait(), TIMEOUT)
        await until(lambda: server.open_streams == 1)
        assert len(informer.store) == 0
        assert not informer.has_synced


@pytest.mark.guarantee("R-5")
async def test_a_streaming_list_closed_early_leaves_no_trace(server: Any, informer: Informer, until: Until) -> None:
    """The half that arrived is thrown away, and this attempt takes a list."""
    server.on("stream", server.stream(event("ADDED", pod("ghost", 1)), bookmark(2)))
    server.on("list", server.reply(200, pod_list(5, pod("a", 3))))
    ear = Ear(informer)
    async with running(informer):
        await asyncio.wait_for(informer.wait_synced(), TIMEOUT)
        await until(lambda: server.requests("watch"))
    assert ear.heard == ["+a!"]
    assert server.requests("watch")[0].query["resourceVersion"] == "5"


@pytest.mark.guarantee("R-6")
async def test_silence_before_the_end_of_a_snapshot_is_told() -> None:
    clock = VirtualClock()
    script = Script(clock)
    informer = Informer(script, PODS, clock=clock)
    with capture_logs() as logs:
        async with running(informer):
            await settle()
            await script.send(event("ADDED", pod("a", 1)))
            await clock.advance(9)
            await script.send(event("ADDED", pod("b", 2)))
            await clock.advance(2)
            assert not logs, "something came within the ten seconds"
            await clock.advance(20)
            assert [(each["log_level"], each["seconds"], each["events"]) for each in logs] == [
                ("warning", 10.0, 2),
                ("warning", 20.0, 2),
            ]
            await script.send(bookmark(5, end=True))
            await clock.advance(40)
            assert informer.has_synced
    assert len([each for each in logs if "nothing comes" in each["event"]]) == 2


@pytest.mark.guarantee("R-7")
async def test_initial_events_are_no_progress(server: Any, informer: Informer, clock: Any) -> None:
    """They are not in the order of their versions: a reader that went on from the last one would miss others."""
    server.on("stream", server.stream(event("ADDED", pod("a", 50)), bookmark(60)))
    await run_until(informer, lambda: len(server.requests("stream")) >= 2)
    assert "resourceVersion" not in server.requests("stream")[1].query
    assert "resourceVersion" not in server.requests("list")[0].query


@pytest.mark.guarantee("R-14")
async def test_a_table_in_a_stream_is_no_snapshot(server: Any, informer: Informer) -> None:
    """Its rows would be skipped as objects of another kind, and the collection would look empty."""
    table = {"kind": "Table", "metadata": {"resourceVersion": "4"}, "rows": []}
    server.on("stream", server.stream(event("ADDED", table), bookmark(5, end=True), then="hang"))
    server.on("list", server.reply(200, pod_list(5, pod("a", 1))))
    await run_until(informer, lambda: informer.has_synced)
    assert informer.store.keys() == ["ns/a"]


@pytest.mark.guarantee("R-26")
@pytest.mark.parametrize("code", [429, 410, 500])
async def test_errors_in_the_stream_of_a_snapshot(server: Any, informer: Informer, clock: Any, code: int) -> None:
    """The stream is a watch by then: 429 keeps the version; all others take a snapshot, first at the last version.

    Only 410 does so at once.
    """
    server.on("stream", server.stream(bookmark(5, end=True), event("ADDED", pod("a", 6)), failure(code)))
    await run_until(informer, lambda: len(server.seen) >= 2)
    second = server.seen[1]
    assert (second.what, second.query["resourceVersion"]) == ("watch" if code == 429 else "stream", "6")
    assert code == 410 or clock.slept[0] == pytest.approx(0.8)
    assert informer.store.keys() == ["ns/a"]


# What looks like a seam between two items, in strings and in nested lists.
TEXTS = st.sampled_from(["a", '"},{"kind', '},{"metadata":{', '"items":[', "\\", '"'])
VALUES = st.recursive(
    TEXTS | st.integers(0, 9), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
PODS_COLLECTION = Collection(resource=PODS)
ITEMS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": st.dictionaries(TEXTS, VALUES, max_size=2),
        "spec": st.lists(VALUES, max_size=3),
    }
)


@pytest.mark.guarantee("P-24")
@given(items=st.lists(ITEMS, max_size=12), step=st.integers(1, 400), first=st.booleans())
def test_steps_give_what_the_whole_would(items: list[Any], step: int, first: bool) -> None:
    """Whatever the items look like, and wherever the metadata stands: custom resources have it at the end."""
    head, tail = {"kind": "PodList", "metadata": {"resourceVersion": "5", "continue": "x"}}, {"items": items}
    body = ListBody(orjson.dumps(head | tail if first else tail | head), PODS_COLLECTION, step=step)
    assert [item for batch in body for item in batch] == items
    assert (body.resource_version, body.continue_token) == ("5", "x")


@pytest.mark.guarantee("R-14")
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"kind":"PodList","metadata":{},"items":[{"a":1},{"b":', b"[]"])
def test_what_is_no_list_is_an_error(body: bytes) -> None:
    with pytest.raises(MalformedResponse, match="listing pods"):
        list(ListBody(body, PODS_COLLECTION, step=4))


def test_no_items_are_written_as_null_by_some_servers() -> None:
    body = ListBody(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":null}', PODS_COLLECTION)
    assert list(body) == [[]]


@pytest.mark.guarantee("P-35")
async def test_other_tasks_run_between_the_steps_of_a_list() -> None:
    items = [pod(f"p{number}", number, blob="x" * 10_000) for number in range(1, 201)]
    pauses = 0

    class Counting(SystemClock):
        async def sleep(self, seconds: float) -> None:
            nonlocal pauses
            pauses += 1
            await super().sleep(seconds)

    client = AsyncMock(KubeClient)
    client.list_bytes.return_value = orjson.dumps(pod_list(5, *items))
    entries, version = await list_collection(client, PODS_COLLECTION, Store().entry, "7", clock=Counting())
    assert (len(entries), version) == (200, "5")
    assert pauses >= 200 * 10_000 / 2**18


DEEP = b"[" * 5000 + b"]" * 5000


def odd_pod(number: int, spec: bytes = DEEP) -> bytes:
    """A pod of which nobody can read the spec."""
    return orjson.dumps(pod(f"odd{number}", number))[:-1] + b',"spec":' + spec + b"}"


@pytest.mark.parametrize("step", [1, 100, 20_000, 2**20])
@pytest.mark.parametrize("place", [0, 3, 7])
def test_an_item_that_cannot_be_read_is_listed_by_its_metadata_among_the_others(place: int, step: int) -> None:
    items = [orjson.dumps(pod(f"p{number}", number)) for number in range(7)]
    items[place:place] = [odd_pod(7), odd_pod(8, b'"\\ud800"')]
    head = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"x"},"items":['
    body = ListBody(head + b",".join(items) + b"]}\n", PODS_COLLECTION, step=step)
    found = [item for batch in body for item in batch]
    assert (body.resource_version, body.continue_token) == ("5", "x")
    assert [item["metadata"]["name"] for item in found if UNREADABLE in item] == ["odd7", "odd8"]
    assert [item for item in found if UNREADABLE not in item] == [pod(f"p{number}", number) for number in range(7)]


@pytest.mark.parametrize("indices", [range(7), range(0)])
def test_items_that_can_be_read_are_not_taken_apart(indices: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for the end of each item costs more than decoding it."""
    monkeypatch.setattr(snapshot, "read_items", lambda *_: iter(()))
    items = [pod(f"p{number}", number, blob="x" * 50) for number in indices]
    found = [item for batch in ListBody(orjson.dumps(pod_list(5, *items)), PODS_COLLECTION, step=300) for item in batch]
    assert found == items


@pytest.mark.guarantee("P-24")
def test_items_that_begin_differently_make_no_large_step() -> None:
    items = [{"kind": "Pod"}, *(pod(f"p{number}", number, blob="x" * 900) for number in range(200))]
    batches = list(ListBody(orjson.dumps(pod_list(5, *items)), PODS_COLLECTION, step=1000))
    assert [len(batch) for batch in batches if len(batch) > 8] == []
    assert sum(map(len, batches)) == len(items)


@pytest.mark.guarantee("P-24")
@pytest.mark.parametrize("odd", [[], [odd_pod(0), odd_pod(1)]], ids=["readable", "unreadable"])
@pytest.mark.parametrize(("step", "most"), [(20_000, 20), (100, 1)])
def test_no_step_is_large(odd: list[bytes], step: int, most: int) -> None:
    """An item that is larger than a step is one."""
    items = [*odd[:1], *(orjson.dumps(pod(f"p{number}", number, blob="x" * 900)) for number in range(200)), *odd[1:]]
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[' + b",".join(items) + b"]}"
    batches = list(ListBody(body, PODS_COLLECTION, step=step))
    assert max(map(len, batches)) <= most
    assert sum(map(len, batches)) == len(items)


@pytest.mark.guarantee("R-14")
@pytest.mark.parametrize("cut", [1, 2, 3, 2000, 10_050])
def test_a_list_with_such_an_item_that_was_cut_is_an_error(cut: int) -> None:
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[' + odd_pod(0) + b"," + odd_pod(1) + b"]}"
    with pytest.raises(MalformedResponse, match="listing pods"):
        list(ListBody(body[:-cut], PODS_COLLECTION, step=100))


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_may_have_blanks(indent: int | None) -> None:
    """As whatever stands between may write it."""
    listed = pod_list(5, pod("a", 1), pod("b", 2))
    body = ListBody(json.dumps(listed, indent=indent).encode(), PODS_COLLECTION)
    (items,) = body
    assert [each["metadata"]["name"] for each in items] == ["a", "b"]
    assert body.resource_version == "5"
