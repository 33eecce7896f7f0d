"""Lists and watches as one collection, and lists by a watch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.commands import TIMEOUT
from support.informers import Ear, Script, Until, bookmark, event, failure, pod, pod_list, run_until, running
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.rest.resources import PODS


@pytest.mark.guarantee("R-1", "R-8", "R-13", "S-7")
@pytest.mark.parametrize("code", [400, 403, 410, 504])
async def test_a_server_without_streaming_lists_is_listed_at_once(
    server: Any, informer: Informer, clock: Any, code: int
) -> None:
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
async def test_a_list_that_takes_too_long_in_one_go_is_read_in_pages(
    server: Any, informer: Informer, clock: Any, until: Until
) -> None:
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
async def test_nothing_is_visible_before_the_snapshot_is_complete(
    server: Any, informer: Informer, until: Until
) -> None:
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
