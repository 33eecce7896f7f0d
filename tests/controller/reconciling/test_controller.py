"""The generic controller loop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import orjson
import pytest
import structlog
from structlog.testing import capture_logs
from support.commands import TIMEOUT
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.rest.errors import AlreadyExists, Conflict, KubeError, ServerError, TransportError
from trainmaster.controller.kube.workqueue.queue import LOW_PRIORITY, KeyedBackoff, WorkQueue
from trainmaster.controller.log_config import configure_logs
from trainmaster.controller.reconciling.controller import UNOBSERVED_INTERVAL, Controller, require_unique_names
from trainmaster.controller.reconciling.outcomes import (
    DONE,
    ExpectationsPending,
    Outcome,
    Requeue,
    RequeueAfter,
    TerminalError,
)
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.metrics.registry import REGISTRY

KEY = "team/demo"

Step: TypeAlias = "Outcome | BaseException | Callable[[], Awaitable[Outcome]]"


class Script:
    """A reconcile function that does one thing after the other; then it is done."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.seen: list[str] = []

    async def __call__(self, key: str) -> Outcome:
        self.seen.append(key)
        step = self.steps.pop(0) if self.steps else DONE
        if isinstance(step, BaseException):
            raise step
        return await step() if callable(step) else step


class Bench:
    """A running controller whose time the test moves."""

    def __init__(
        self,
        reconcile: Callable[[str], Awaitable[Outcome]],
        name: str,
        *,
        workers: int | Callable[[], int] = 2,
        timeout: float = 60,
        **options: Any,
    ) -> None:
        self.name = name
        self.clock = VirtualClock()
        self.backoff = KeyedBackoff(random=lambda: 0.0)
        self.queue = WorkQueue(clock=self.clock, backoff=self.backoff)
        self.controller = Controller(
            name, reconcile, self.queue, workers=workers, timeout=timeout, clock=self.clock, **options
        )
        self.task = asyncio.create_task(self.controller.run())

    def metric(self, suffix: str, **labels: str) -> float | None:
        return value_of(f"controller_runtime_{suffix}", {"controller": self.name, **labels})

    def results(self) -> dict[str, float]:
        labels = ("error", "requeue_after", "requeue", "success")
        counts = {label: self.metric("reconcile_total", result=label) or 0 for label in labels}
        return {label: count for label, count in counts.items() if count}


@asynccontextmanager
async def running(reconcile: Callable[[str], Awaitable[Outcome]], name: str, **options: Any) -> AsyncIterator[Bench]:
    bench = Bench(reconcile, name, **options)
    yield bench
    bench.queue.shut_down()
    await asyncio.wait_for(bench.task, TIMEOUT)


@pytest.mark.guarantee("K-1")
def test_two_controllers_must_not_share_a_name() -> None:
    def controller(name: str) -> Controller:
        return Controller(name, Script(), WorkQueue(), workers=1)

    require_unique_names([controller("one"), controller("two")])
    with pytest.raises(ValueError, match="two controllers called 'one'"):
        require_unique_names([controller("one"), controller("two"), controller("one")])


@pytest.mark.guarantee("K-2")
async def test_a_number_of_workers_that_changes_is_kept_within() -> None:
    """More begin with the next key; those that are too many end what they are at and take no other."""
    active: set[str] = set()
    most: list[int] = []
    allowed = 2
    turn = asyncio.Semaphore(0)

    async def reconcile(key: str) -> Outcome:
        active.add(key)
        most.append(len(active))
        await turn.acquire()
        active.discard(key)
        return DONE

    async def end(number: int) -> None:
        for _ in range(number):
            turn.release()
        await bench.clock.advance(0)

    async with running(reconcile, "k2-changing", workers=lambda: allowed) as bench:
        for number in range(30):
            bench.queue.add(f"team/{number}")
        await bench.clock.advance(1)
        assert len(active) == bench.metric("active_workers") == bench.metric("max_concurrent_reconciles") == 2
        allowed = 6
        await end(1)
        assert len(active) == bench.metric("max_concurrent_reconciles") == 6
        allowed = 3
        await end(3)
        assert len(active) == 3
        await end(10)
        assert len(active) == bench.metric("max_concurrent_reconciles") == 3
        assert max(most) == 6
        await end(30)
        assert (bench.results(), bench.metric("active_workers")) == ({"success": 30}, 0)


@pytest.mark.guarantee("K-2")
async def test_a_reconcile_that_hangs_is_cancelled_and_retried() -> None:
    async def hang() -> Outcome:
        await asyncio.Event().wait()
        return DONE

    script = Script(hang)
    async with running(script, "k2-hanging", timeout=60) as bench:
        bench.queue.add(KEY)
        await bench.clock.advance(59)
        assert len(script.seen) == 1
        assert bench.results() == {}
        await bench.clock.advance(2)
        assert len(script.seen) == 2
        assert bench.results() == {"error": 1, "success": 1}
        assert bench.metric("reconcile_timeouts_total") == 1
        assert bench.metric("reconcile_panics_total") == 0


@pytest.mark.guarantee("K-3")
@pytest.mark.parametrize(
    ("step", "result", "requeues", "again_after"),
    [
        (RuntimeError("unforeseen"), "error", 2, 0.01),
        (TransportError("connection refused"), "error", 2, 0.01),
        (TerminalError("nobody can read this"), "error", 1, None),
        (RequeueAfter(30), "requeue_after", 0, 30),
        (ExpectationsPending(30), "requeue_after", 1, 30),
        (Requeue("in the way"), "requeue", 2, 0.01),
        (DONE, "success", 0, None),
    ],
)
async def test_what_follows_from_an_outcome(step: Step, result: str, requeues: int, again_after: float | None) -> None:
    """After one failure, so that it shows whether the backoff goes on, stands still or starts over."""
    script = Script(Requeue("the first time"), step)
    what = type(step).__name__
    async with running(script, f"k3-{what}") as bench:
        bench.queue.add(KEY)
        await bench.clock.advance(0.005)
        assert len(script.seen) == 2
        assert bench.backoff.next_delay(KEY) == 0.005 * 2**requeues
        expected = {"requeue": 1.0}
        expected[result] = expected.get(result, 0) + 1
        assert bench.results() == expected
        assert bench.metric("reconcile_errors_total") == (1 if result == "error" else 0)
        assert bench.metric("terminal_reconcile_errors_total") == (1 if what == "TerminalError" else 0)
        if again_after is None:
            await bench.clock.advance(10_000)
            assert len(script.seen) == 2
            bench.queue.add(KEY)
            await bench.clock.advance(0)
            assert len(script.seen) == 3, "after a change it is looked at again"
        else:
            await bench.clock.advance(again_after * 0.99)
            assert len(script.seen) == 2
            await bench.clock.advance(again_after * 0.02)
            assert len(script.seen) == 3


@pytest.mark.guarantee("W-25")
async def test_a_retry_comes_at_the_latest_when_it_must() -> None:
    script = Script(*[Requeue("no", at_latest=100)] * 12, Requeue("no", at_latest=1))
    async with running(script, "w25-at-latest") as bench:
        bench.queue.add(KEY)
        while len(script.seen) < 13:
            await bench.clock.advance(1)
        seen_at = bench.clock.monotonic()
        while len(script.seen) < 14:
            await bench.clock.advance(0.25)
        assert bench.clock.monotonic() - seen_at <= 1.25


@pytest.mark.guarantee("W-26")
@pytest.mark.parametrize("step", [RuntimeError("no"), Requeue("no"), RequeueAfter(0.001), ExpectationsPending(0.001)])
async def test_what_brings_a_key_back_keeps_its_priority(step: Step) -> None:
    release = asyncio.Event()

    async def wait() -> Outcome:
        await release.wait()
        return DONE

    script = Script(step, wait)
    async with running(script, f"w26-{type(step).__name__}", workers=1) as bench:
        bench.queue.add("team/low", priority=LOW_PRIORITY)
        await bench.clock.advance(0)
        bench.queue.add("team/busy")
        await bench.clock.advance(1)  # busy is at work, low is ready again
        bench.queue.add("team/normal")
        release.set()
        await bench.clock.advance(0)
        assert script.seen == ["team/low", "team/busy", "team/normal", "team/low"]


@pytest.mark.guarantee("C-9", "K-2", "K-4")
@pytest.mark.parametrize(
    ("error", "panics", "level"),
    [
        (Conflict(status=409), 0, "debug"),
        (AlreadyExists(status=409), 0, "debug"),
        (TimeoutError("a socket"), 1, "error"),
        (RuntimeError("unforeseen"), 1, "error"),
        (TransportError("connection refused"), 0, "warning"),
        (ServerError(status=500), 0, "warning"),
        (KubeError("not JSON"), 0, "error"),
        (ExceptionGroup("two", [ValueError("a"), ExceptionGroup("deeper", [KeyError("b")])]), 2, "error"),
        (ExceptionGroup("requests", [TransportError("reset"), ServerError(status=503)]), 0, "warning"),
    ],
)
async def test_an_error_is_retried_and_ends_no_worker(error: Exception, panics: int, level: str) -> None:
    script = Script(error, error)
    with capture_logs() as logs:
        async with running(script, f"k4-{type(error).__name__}-{error}", workers=1) as bench:
            bench.queue.add(KEY)
            await bench.clock.advance(1)
            assert script.seen == [KEY] * 3
            assert bench.backoff.next_delay(KEY) == 0.005
            assert bench.results() == {"error": 2, "success": 1}
            assert bench.metric("reconcile_errors_total") == 2
            assert bench.metric("reconcile_panics_total") == 2 * panics
            assert bench.metric("reconcile_timeouts_total") == 0
    assert {entry["log_level"] for entry in logs} == {level}


@pytest.mark.guarantee("K-4")
async def test_a_cancellation_that_nobody_asked_for_is_a_failure_of_one_reconcile() -> None:
    """Passed on it would end the worker silently: to a task group, a cancelled child has finished."""

    async def wait_for_what_was_cancelled() -> Outcome:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    script = Script(wait_for_what_was_cancelled, BaseExceptionGroup("both", [asyncio.CancelledError(), ValueError()]))
    async with running(script, "k4-stray", workers=1) as bench:
        bench.queue.add(KEY)
        await bench.clock.advance(1)
        assert len(script.seen) == 3
        assert bench.metric("reconcile_panics_total") == 3
        assert bench.results() == {"error": 2, "success": 1}


@pytest.mark.guarantee("K-4", "P-33")
async def test_a_cancelled_worker_ends() -> None:
    """At once, after the reconcile has cleaned up behind itself."""
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return DONE

    bench = Bench(reconcile, "k4-cancelled")
    bench.queue.add(KEY)
    await asyncio.wait_for(started.wait(), TIMEOUT)
    bench.task.cancel()
    await asyncio.wait([bench.task], timeout=TIMEOUT)
    assert bench.task.cancelled()
    assert cleaned.is_set()
    assert bench.metric("active_workers") == 0
    assert bench.results() == {}


@pytest.mark.guarantee("K-4")
async def test_what_ends_the_process_is_not_kept() -> None:
    class Stop(BaseException):
        pass

    bench = Bench(Script(BaseExceptionGroup("both", [Stop(), ValueError("counted")])), "k4-fatal")
    bench.queue.add(KEY)
    with pytest.raises(BaseExceptionGroup) as caught:
        await asyncio.wait_for(bench.task, TIMEOUT)
    assert caught.value.subgroup(Stop) is not None
    assert bench.metric("reconcile_panics_total") == 1


@pytest.mark.guarantee("K-5")
async def test_every_line_of_a_reconcile_carries_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    """Also the lines of code that knows nothing of reconciles, through structlog or the standard library."""

    async def reconcile(key: str) -> Outcome:
        structlog.get_logger("client").warning("from the client")
        logging.getLogger("library").warning("from a library")

        async def request() -> None:
            structlog.get_logger("client").warning("from a task of the client")

        await asyncio.create_task(request())
        return DONE

    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers, root.level
    configure_logs(style="json")
    try:
        async with running(reconcile, "k5-ids", workers=3) as bench:
            for number in range(3):
                bench.queue.add(f"team/{number}")
            await bench.clock.advance(0)
            structlog.get_logger("outside").warning("outside")
    finally:
        root.handlers = handlers
        root.setLevel(level)
        structlog.configure(**before)
    lines = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert "reconcile_id" not in lines.pop()
    assert len(lines) == 9
    ids = {name: {line["reconcile_id"] for line in lines if line["name"] == name} for name in "012"}
    assert all(len(found) == 1 for found in ids.values())
    assert len(set.union(*ids.values())) == 3
    assert {(line["controller"], line["namespace"]) for line in lines} == {("k5-ids", "team")}


@pytest.mark.guarantee("W-9")
async def test_the_wait_of_a_key_is_counted_from_the_start_of_the_workers_on() -> None:
    """A replica that stands by for an hour has a full queue when it begins to lead."""
    name = "test-waits"
    clock, seen = VirtualClock(), asyncio.Event()

    async def reconcile(_: str) -> Outcome:
        seen.set()
        return DONE

    queue = WorkQueue(clock=clock, metrics=WorkQueueMetrics(name))
    controller = Controller(name, reconcile, queue, clock=clock)
    queue.add(KEY)
    clock.step(3600)
    running = asyncio.create_task(controller.run())
    await seen.wait()
    queue.shut_down()
    await running
    assert value_of("workqueue_queue_duration_seconds_count", {"name": name, "controller": name}) == 1
    assert value_of("workqueue_queue_duration_seconds_sum", {"name": name, "controller": name}) == 0


@pytest.mark.guarantee("K-6")
async def test_workers_finish_what_they_are_at() -> None:
    started, release = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def reconcile(key: str) -> Outcome:
        started.set()
        await release.wait()
        ended.append(key)
        return DONE

    bench = Bench(reconcile, "k6-stopping")
    bench.queue.add(KEY)
    await asyncio.wait_for(started.wait(), TIMEOUT)
    bench.queue.shut_down()
    release.set()
    await asyncio.wait_for(bench.task, TIMEOUT)
    assert ended == [KEY]


@pytest.mark.guarantee("P-35")
async def test_other_tasks_get_a_turn_between_reconciles_that_wait_for_nothing() -> None:
    """After a start thousands of settled objects are in the queue, and nothing in their reconciles waits."""
    script = Script()
    most = 0
    async with running(script, "p35-turns", workers=1) as bench:
        for number in range(100):
            bench.queue.add(f"team/job-{number}")
        while len(script.seen) < 100:
            before = len(script.seen)
            await asyncio.sleep(0)
            most = max(most, len(script.seen) - before)
    assert most == 1


@pytest.mark.guarantee("K-7", "K-8")
def test_every_series_exists_before_anything_happened() -> None:
    Controller("k7-fresh", Script(), WorkQueue(), workers=3)
    counters = ("errors", "panics", "timeouts")
    names = [f"controller_runtime_reconcile_{counter}_total" for counter in counters]
    names += ["controller_runtime_terminal_reconcile_errors_total", "controller_runtime_active_workers"]
    names += ["controller_runtime_reconcile_time_seconds_count"]
    assert [value_of(name, {"controller": "k7-fresh"}) for name in names] == [0] * 6
    for result in ("error", "requeue_after", "requeue", "success"):
        labels = {"controller": "k7-fresh", "result": result}
        assert value_of("controller_runtime_reconcile_total", labels) == 0
    buckets = {
        float(sample.labels["le"])
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "controller_runtime_reconcile_time_seconds_bucket"
        and sample.labels["controller"] == "k7-fresh"
    }
    assert len(buckets - {float("inf")}) == 40
    assert min(buckets) == 0.005
    assert max(buckets - {float("inf")}) == 60


@pytest.mark.guarantee("C-3")
async def test_keys_that_nothing_was_heard_of_are_reconciled_again() -> None:
    """What was written for them is gone, and no event will ever say so."""
    script, forgotten = Script(), [KEY]
    async with running(script, "c3-unobserved", unobserved=lambda: [forgotten.pop()] if forgotten else []) as bench:
        await bench.clock.advance(UNOBSERVED_INTERVAL - 1)
        assert script.seen == []
        await bench.clock.advance(1)
        assert script.seen == [KEY]
        await bench.clock.advance(10 * UNOBSERVED_INTERVAL)
        assert script.seen == [KEY]
