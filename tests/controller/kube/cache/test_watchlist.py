"""The streaming list: a snapshot that goes on as the watch."""

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
    assert ear.deleted == [pod("b", 11)]
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
