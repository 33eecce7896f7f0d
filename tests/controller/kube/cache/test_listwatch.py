"""The list: at which version, in pages or in one go, and what is no list."""

from __future__ import annotations

from typing import Any

import pytest
from support.informers import Until, event, pod, pod_list, run_until, running

from trainmaster.controller.kube.cache.informer import Informer


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
@pytest.mark.parametrize("continuation_expires", [False, True])
async def test_a_list_that_never_ends_is_an_error(
    server: Any, informer: Informer, clock: Any, until: Until, *, continuation_expires: bool
) -> None:
    """The same token comes again, or the whole is continued like its pages: the next try comes after a wait."""
    page = server.reply(200, pod_list(5, pod("a", 1), **{"continue": "next"}))
    answers = [page, server.status(410, "Expired")] * 2 if continuation_expires else [page] * 2
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
