"""The reader against a server that misbehaves byte by byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs
from support.informers import Ear, Script, Until, bookmark, event, failure, pod, pod_list, restarts, run_until, running
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import KubeError, ServerError
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.metrics.registry import REGISTRY
from trainmaster.runtime.jsontree import JsonObject


@pytest.mark.guarantee("R-28", "R-31", "P-6")
async def test_a_410_when_a_watch_is_opened_changes_the_version(server: Any, informer: Informer) -> None:
    """The same version is not tried for ever."""
    server.on("list", *(server.reply(200, pod_list(version, pod("a", 1))) for version in (5, 8)))
    server.on("watch", server.status(410, "Gone"))
    await run_until(informer, lambda: len(server.requests("watch")) == 2)
    assert [seen.query["resourceVersion"] for seen in server.requests("watch")] == ["5", "8"]


@pytest.mark.guarantee("R-21", "R-22", "R-23")
async def test_a_watch_that_ends_is_opened_again_without_a_list(server: Any, informer: Informer, clock: Any) -> None:
    """From the last bookmark or event; a long quiet watch is no failure."""
    server.on("list", server.reply(200, pod_list(5)))
    server.on(
        "watch",
        server.stream(event("ADDED", pod("a", 6))),
        server.stream(bookmark(15)),
        server.stream(before=lambda: clock.skip(300)),
    )
    await run_until(informer, lambda: len(server.requests("watch")) == 4)
    assert [seen.query["resourceVersion"] for seen in server.requests("watch")] == ["5", "6", "15", "15"]
    assert len(server.requests("list")) == 1
    assert clock.slept == []


@pytest.mark.guarantee("R-24", "R-27", "P-7")
async def test_a_watch_that_ends_at_once_backs_off(server: Any, informer: Informer, clock: Any) -> None:
    """A broken proxy must not make a hot loop."""
    server.on("list", *(server.reply(200, pod_list(5)) for _ in range(20)))
    server.on("watch", *(server.stream() for _ in range(20)))
    await run_until(informer, lambda: len(clock.slept) >= 7)
    assert clock.slept[:7] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0])


@pytest.mark.guarantee("R-24", "R-27")
async def test_a_repeated_bookmark_is_no_progress(server: Any, informer: Informer, clock: Any) -> None:
    server.on("list", *(server.reply(200, pod_list(5)) for _ in range(5)))
    server.on("watch", *(server.stream(bookmark(5)) for _ in range(5)))
    await run_until(informer, lambda: len(clock.slept) >= 3)
    assert clock.slept[:3] == pytest.approx([0.8, 1.6, 3.2])


@pytest.mark.guarantee("R-27")
async def test_jitter_only_adds(client: KubeClient, server: Any, clock: Any) -> None:
    """The wait is between d and 2d."""
    informer = Informer(client, PODS, clock=clock, random=lambda: 0.5)
    await run_until(informer, lambda: len(clock.slept) >= 2)
    assert clock.slept[:2] == pytest.approx([1.2, 2.4])


@pytest.mark.guarantee("R-25", "R-26")
async def test_a_busy_server_keeps_the_version(server: Any, informer: Informer, clock: Any) -> None:
    """429, when opening and in the stream, backs off and lists nothing."""
    server.on("list", server.reply(200, pod_list(5)))
    server.on(
        "watch",
        server.status(429, "TooManyRequests", Retry_After="7"),
        server.stream(event("ERROR", {"kind": "Status", "code": 429, "reason": "TooManyRequests"})),
    )
    await run_until(informer, lambda: len(server.requests("watch")) == 3)
    assert [seen.query["resourceVersion"] for seen in server.requests("watch")] == ["5", "5", "5"]
    assert clock.slept == pytest.approx([7.0, 1.6])


@pytest.mark.guarantee("R-23", "R-32", "P-5")
@pytest.mark.parametrize("fault", ["reset", "truncated", "silent"])
async def test_a_broken_watch_goes_on(server: Any, informer: Informer, clock: Any, until: Until, fault: str) -> None:
    """No list, nothing lost, nothing twice."""
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
    ear, before = Ear(informer), restarts()
    async with running(informer):
        await until(lambda: len(informer.store))
        clock.step(5 if fault == "silent" else 0)
        await until(lambda: len(informer.store) == 2)
    assert ear.heard == ["+a", "+b"]
    assert server.requests("watch")[1].query["resourceVersion"] == "6"
    assert len(server.requests("list")) == 1
    cause = "silent" if fault == "silent" else "broken"
    assert restarts()[cause] == before[cause] + 1


@pytest.mark.guarantee("R-29")
async def test_foreign_objects_are_skipped(server: Any, informer: Informer) -> None:
    odd = {"kind": "Node", "metadata": {"name": "n", "resourceVersion": "6"}}
    server.on("list", server.reply(200, pod_list(5)))
    server.on("watch", server.stream(event("ADDED", odd), event("ADDED", pod("a", 7)), then="hang"))
    await run_until(informer, lambda: len(informer.store))
    assert informer.store.keys() == ["ns/a"]


@pytest.mark.guarantee("R-25")
async def test_a_server_is_waited_for_at_the_start(serve: Any, clock: Any, until: Until, unused_tcp_port: int) -> None:
    """Keeps trying; streaming or not makes no difference to a refused connection."""
    config = RestConfig(server=f"http://127.0.0.1:{unused_tcp_port}")
    async with KubeClient(config, user_agent="test", clock=clock, tries=1) as client:
        informer = Informer(client, PODS, clock=clock)
        async with running(informer):
            await until(lambda: len(clock.slept) >= 3)
            assert not informer.has_synced
            server = await serve(port=unused_tcp_port)
            server.on("list", server.reply(200, pod_list(5, pod("a", 1))))
            await until(lambda: informer.has_synced)


@pytest.mark.guarantee("R-20")
@pytest.mark.parametrize(("drawn", "asked"), [(0.0, 300), (0.5, 450), (0.99, 597)])
async def test_watches_last_five_to_ten_minutes(drawn: float, asked: float) -> None:
    clock = VirtualClock()
    script = Script(clock)
    async with running(Informer(script, PODS, clock=clock, random=lambda: drawn)):
        await script.send(bookmark(5, end=True))
        await clock.advance(2)
        await script.close()
    assert [watch["timeout_seconds"] for watch in script.opened] == pytest.approx([asked, asked])


@pytest.mark.guarantee("R-22")
async def test_progress_is_recorded_after_the_store_has_it(server: Any, informer: Informer) -> None:
    """An event that the store could not take is read again, not lost."""
    server.on("list", *(server.reply(200, pod_list(5)) for _ in range(2)))
    nameless = event("ADDED", {"kind": "Pod", "metadata": {"name": "a"}})
    server.on("watch", server.stream(event("ADDED", pod("b", 6)), nameless))
    await run_until(informer, lambda: len(server.requests("watch")) == 2)
    assert server.requests("list")[1].query["resourceVersion"] == "6"


@pytest.mark.guarantee("P-8", "P-10")
@pytest.mark.parametrize("frame", [b"not json\n", b'{"type":"NEW","object":{}}\n', failure(500), failure(None)])
async def test_no_frame_ends_the_reader(server: Any, informer: Informer, frame: bytes | JsonObject) -> None:
    server.on("list", server.reply(200, pod_list(5, pod("a", 1))), server.reply(200, pod_list(9, pod("b", 8))))
    server.on("watch", server.stream(frame))
    await run_until(informer, lambda: informer.store.keys() == ["ns/b"])


@pytest.mark.guarantee("R-31")
async def test_a_version_that_stays_expired_is_given_up(server: Any, informer: Informer) -> None:
    """Also if the streaming list is offered: the next one asks for the newest state."""
    gone = server.status(410, "Expired")
    server.on("stream", server.stream(bookmark(5, end=True), failure(410)), gone)
    server.on("list", gone, server.status(500, "InternalError"))
    await run_until(informer, lambda: len(server.requests("stream")) >= 3)
    assert [seen.query.get("resourceVersion") for seen in server.requests("list")][:2] == ["5", None]
    assert "resourceVersion" not in server.requests("stream")[2].query


@pytest.mark.guarantee("S-20")
async def test_restarts_are_counted_by_cause(server: Any, informer: Informer, clock: Any) -> None:
    causes = ["ended", "broken", "busy", "expired", "malformed", "failed", "denied", "refused", "short"]
    before = restarts()

    async def refuse(request: Any) -> Any:
        request.transport.abort()

    server.on("list", *(server.reply(200, pod_list(version)) for version in range(5, 60, 10)))
    server.on(
        "watch",
        server.stream(bookmark(6)),
        server.stream(bookmark(7), b'{"type":'),
        server.stream(bookmark(8), failure(429)),
        server.stream(failure(410)),
        server.stream(b"nonsense\n"),
        server.stream(failure(500)),
        server.status(403, "Forbidden"),
        server.stream(),
        refuse,
    )
    await run_until(informer, lambda: len(server.requests("watch")) == 10)
    counted = {cause: count - before[cause] for cause, count in restarts().items()}
    assert counted == dict.fromkeys(causes, 1.0) | {"ended": 2.0, "silent": 0.0}


@pytest.mark.guarantee("S-20")
async def test_all_series_are_there_at_zero(client: KubeClient) -> None:
    Informer(client, JOBSETS, InformerOptions(name="untouched"))
    assert restarts("untouched")["silent"] == 0
    names = {
        sample.name
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.labels.get("resource") == "untouched"
    }
    assert len({name for name in names if name.startswith("trainmaster_informer_")}) == 12


@pytest.mark.guarantee("R-27")
async def test_a_trouble_is_told_once_and_so_is_its_end(server: Any, informer: Informer, until: Until) -> None:
    """A dead server must not fill the log."""
    server.on("list", *(server.reply(200, pod_list(5)) for _ in range(9)))
    server.on("watch", *(server.stream() for _ in range(6)), server.stream(bookmark(6), then="hang"))
    with capture_logs() as logs:
        async with running(informer):
            await until(lambda: informer.store.resource_version == 6)
            await until(lambda: logs[-1]["event"] == "collection can be read again")
    told = [entry["event"] for entry in logs if entry["log_level"] != "debug" and "collection" in entry["event"]]
    assert told == ["collection cannot be read, trying again", "collection can be read again"]


async def test_a_missing_permission_is_told_with_what_to_grant(client: KubeClient, server: Any, clock: Any) -> None:
    informer = Informer(client, JOBSETS, clock=clock)
    server.on("stream", *(server.status(403, "Forbidden", "no") for _ in range(3)))
    listed = {"kind": "JobSetList", "metadata": {"resourceVersion": "5"}, "items": []}
    server.on("list", server.status(403, "Forbidden", "no"), *(server.reply(200, listed) for _ in range(2)))
    server.on("watch", server.status(403, "Forbidden", "no"))
    with capture_logs() as logs:
        await run_until(informer, lambda: len(server.requests("watch")) == 2)
    told = [entry for entry in logs if entry["event"] == "collection cannot be read, trying again"]
    grant = (
        'grant the verbs list and watch on the resource "jobsets" of the API group "jobset.x-k8s.io" by a ClusterRole'
    )
    assert [entry["reason"] for entry in told] == [f"no permission to {verb} it; {grant}" for verb in ("list", "watch")]
    assert {entry["log_level"] for entry in told} == {"warning"}
    assert {entry["resource"] for entry in told} == {JOBSETS.name}


@pytest.mark.guarantee("P-20", "P-35")
async def test_large_objects_are_read_and_other_tasks_run_meanwhile(server: Any, client: KubeClient) -> None:
    """Thousands of events in one burst leave turns for others."""
    frames = b"".join(orjson.dumps(event("ADDED", pod(f"p{n}", n, blob="x" * 5000))) + b"\n" for n in range(1, 2001))
    huge = event("ADDED", pod("huge", 3000, blob="x" * 5 * 2**20))
    server.on("stream", server.stream(frames, huge, bookmark(4000, end=True), frames, then="hang"))
    informer, turns = Informer(client, PODS), 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(take_turns())
    await run_until(informer, lambda: informer.has_synced)
    other.cancel()
    assert len(informer.store) == 2001
    assert turns > 2 * 2000 * 5000 / 2**18


@pytest.mark.guarantee("R-26")
async def test_an_expired_watch_takes_one_snapshot_at_once(server: Any, informer: Informer, clock: Any) -> None:
    """The server has just answered: there is nothing to wait for. If its snapshots expire as fast, there is."""
    server.on("list", *(server.reply(200, pod_list(5, pod("a", 1))) for _ in range(4)))
    server.on("watch", *(server.stream(failure(410, "Expired")) for _ in range(3)))
    await run_until(informer, lambda: len(server.requests("watch")) == 4)
    assert clock.slept == [pytest.approx(0.8), pytest.approx(1.6)]


@pytest.mark.guarantee("R-27")
async def test_progress_ends_the_backoff(server: Any, informer: Informer, clock: Any) -> None:
    """Otherwise the next failure, minutes after a long outage, would wait as long as the last one of the outage."""
    server.on("list", *(server.reply(200, pod_list(5, pod("a", 1))) for _ in range(9)))
    unavailable = server.status(500, "InternalError")
    server.on("watch", unavailable, unavailable, unavailable, server.stream(bookmark(90)), unavailable)
    await run_until(informer, lambda: len(clock.slept) == 4)
    assert clock.slept == pytest.approx([0.8, 1.6, 3.2, 0.8])


class Unwatchable:
    """A server that lists and opens every watch, which then ends or fails at once."""

    def __init__(self, error: KubeError | None, times: int = 1_000) -> None:
        self._error = error
        self._times = times
        self.watches = 0

    async def list_bytes(self, resource: Resource, *_: Any, **__: Any) -> bytes:
        return orjson.dumps({"kind": f"{resource.kind}List", "metadata": {"resourceVersion": "7"}, "items": []})

    @asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[Any]]:
        self.watches += 1

        async def events() -> AsyncIterator[Any]:
            if self.watches > self._times:
                await asyncio.Event().wait()
            if self._error is not None:
                raise self._error
            return
            yield

        yield events()


@pytest.mark.guarantee("R-24", "R-27")
@pytest.mark.parametrize("error", [None, ServerError(status=500, reason="InternalError")])
async def test_collections_whose_watches_open_and_end_do_not_wake_each_other(error: KubeError | None) -> None:
    """A stream that opened says nothing of a server that was away: each collection keeps its own backoff."""
    client: Any = Unwatchable(error)
    virtual = VirtualClock()
    outages = Outages(clock=virtual)
    informers = [Informer(client, each, outages=outages, clock=virtual) for each in (PODS, SERVICES)]
    async with running(informers[0]), running(informers[1]):
        await virtual.advance(120)
    assert 2 * 2 <= client.watches <= 2 * 2 * 8, "streaming lists and watches of two collections, each by its backoff"


@pytest.mark.guarantee("R-24")
async def test_watches_that_end_after_each_event_are_paced(
    server: Any, informer: Informer, clock: Any, until: Until
) -> None:
    server.on("list", server.reply(200, pod_list(5)))
    server.on("watch", *(server.stream(event("MODIFIED", pod("a", version))) for version in range(6, 20)))
    async with running(informer):
        await until(lambda: len(clock.slept) >= 3)
    assert set(clock.slept[:3]) == {1.0}


@pytest.mark.guarantee("R-27")
async def test_a_quiet_watch_that_stays_open_ends_the_trouble() -> None:
    """Its next bookmark would do so as well, a minute later."""
    client: Any = Unwatchable(ServerError(status=500, reason="InternalError"), times=3)
    virtual = VirtualClock()
    informer = Informer(client, PODS, clock=virtual)
    async with running(informer):
        while client.watches <= 3:
            await virtual.advance(0.1)
        assert informer.failure is not None
        await virtual.advance(1.1)
        assert informer.failure is None
