"""The queue: the numbered rules of client-go and controller-runtime, and sequences of calls against a simple model."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.commands import TIMEOUT
from support.series import value_of
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.workqueue.queue import (
    CHANGE_PRIORITY,
    LOW_PRIORITY,
    RAISED_IN_A_ROW,
    KeyedBackoff,
    ShutDown,
    WorkQueue,
)
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.metrics.registry import REGISTRY


def exact_backoff() -> KeyedBackoff:
    return KeyedBackoff(random=lambda: 0.0)


@pytest.fixture
def virtual() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def queue(virtual: VirtualClock) -> WorkQueue:
    return WorkQueue(clock=virtual, backoff=exact_backoff())


def drain(queue: WorkQueue) -> list[str]:
    taken = []
    while (key := queue.take()) is not None:
        taken.append(key)
        queue.done(key)
    return taken


@pytest.mark.guarantee("W-4")
def test_done_without_get_is_an_error(queue: WorkQueue) -> None:
    with pytest.raises(ValueError, match="not being worked on"):
        queue.done("a")


@pytest.mark.guarantee("W-10")
def test_keys_that_failed_need_not_wait_when_the_cause_is_over(queue: WorkQueue, virtual: VirtualClock) -> None:
    """After an outage each would wait for as long again; whoever waits for something else goes on waiting."""
    for _ in range(16):
        for key in ("a", "b"):
            queue.add_rate_limited(key, priority=LOW_PRIORITY if key == "b" else 0)
            virtual.step(400.0)
            assert drain(queue) == [key]
    queue.add_rate_limited("b", priority=LOW_PRIORITY)
    queue.add_rate_limited("a")
    queue.add_after("deadline", 100.0)
    assert drain(queue) == []
    queue.retry_now()
    assert queue.state(limit=1)["readyKeys"][0]["retries"] == 17
    assert drain(queue) == ["a", "b"]


@pytest.mark.guarantee("W-5")
async def test_waiting_workers_are_served_in_order(queue: WorkQueue, virtual: VirtualClock) -> None:
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.add_after("c", 30)
    for key in "ab":
        queue.add(key)
    await virtual.advance(29.9)
    assert [worker.done() for worker in workers] == [True, True, False]
    await virtual.advance(0.2)
    assert await asyncio.gather(*workers) == ["a", "b", "c"]


@pytest.mark.guarantee("W-3")
async def test_cancelled_getter_passes_its_key_on(queue: WorkQueue) -> None:
    """P-31: the wake-up of a worker that is cancelled at that moment must reach another one."""
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await settle()
    queue.add("a")
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.guarantee("W-27")
async def test_shut_down_ends_waiting_workers_at_once(queue: WorkQueue) -> None:
    """Queued keys are dropped."""
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.add("a", priority=1)
    queue.shut_down()
    queue.add("b")
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, ShutDown) for result in results)
    assert queue.take() is None
    assert len(queue) == 0


@pytest.mark.guarantee("W-28")
async def test_shut_down_under_load_deadlocks_nobody() -> None:
    """Producers, workers, delayed keys and the shutdown all at once, in real time."""
    queue = WorkQueue()
    at_work: set[str] = set()

    async def worker() -> None:
        while True:
            try:
                key = await queue.get()
            except ShutDown:
                return
            assert key not in at_work
            at_work.add(key)
            await asyncio.sleep(0)
            at_work.discard(key)
            queue.add_rate_limited(key)
            queue.done(key)

    async def producer(offset: int) -> None:
        for number in range(300):
            queue.add(f"k{(number * 7 + offset) % 50}", priority=number % 3)
            if number % 10 == 0:
                await asyncio.sleep(0)

    async with asyncio.timeout(TIMEOUT):
        workers = [asyncio.create_task(worker()) for _ in range(8)]
        await asyncio.gather(*(producer(offset) for offset in range(4)))
        queue.shut_down()
        await asyncio.gather(*workers)
    assert not at_work


def test_endless_requeues_do_not_pile_up(queue: WorkQueue) -> None:
    """A key that is always worked on before its long delay ends leaves nothing behind."""
    for _ in range(10_000):
        queue.add_after("a", 36_000)
        queue.add("a")
        assert queue.take() == "a"
        queue.done("a")
    assert len(queue._delayed) < 2000


def sample(name: str, suffix: str, **labels: str) -> float | None:
    return value_of(f"workqueue_{suffix}", {"name": name, "controller": name, **labels})


@pytest.mark.guarantee("W-9", "W-30", "W-31", "W-32", "K-7")
def test_metrics_tell_depth_latency_and_running_work(virtual: VirtualClock) -> None:
    name = "test-queue-metrics"
    queue = WorkQueue(clock=virtual, metrics=WorkQueueMetrics(name))
    assert sample(name, "depth", priority="0") == 0
    assert sample(name, "adds_total") == 0
    assert sample(name, "retries_total") == 0
    queue.add("a", priority=LOW_PRIORITY)
    virtual.step(1)
    queue.add("a")
    assert sample(name, "depth", priority="-100") == 0
    assert sample(name, "depth", priority="0") == 1
    virtual.step(1)
    assert queue.take() == "a"
    assert sample(name, "queue_duration_seconds_sum") == 2
    virtual.step(3)
    assert sample(name, "unfinished_work_seconds") == 3
    assert sample(name, "longest_running_processor_seconds") == 3
    queue.done("a")
    assert sample(name, "work_duration_seconds_sum") == 3
    assert sample(name, "unfinished_work_seconds") == 0
    queue.add_after("a", 5)
    assert sample(name, "retries_total") == 1
    assert sample(name, "adds_total") == 1
    virtual.step(5)
    assert sample(name, "adds_total") == 2
    queue.add_after("a", 5)
    queue.add_rate_limited("a", at_latest=1)
    queue.add_after("a", 0)
    assert sample(name, "retries_total") == 3, "every addition with a delay, once"
    queue.shut_down()
    assert sample(name, "depth", priority="0") == 0


@pytest.mark.guarantee("W-9")
def test_what_waited_for_workers_to_start_has_not_waited_for_a_worker(virtual: VirtualClock) -> None:
    """A replica that stands by fills its queue; the first minutes after a failover would tell of hours."""
    name = "test-queue-standby"
    queue = WorkQueue(clock=virtual, backoff=exact_backoff(), metrics=WorkQueueMetrics(name))
    queue.add("early")
    queue.add_after("due", 5)
    queue.add_after("later", 1010)
    virtual.step(1000)
    queue.start()
    virtual.step(2)
    assert {each["key"]: each["waitedSeconds"] for each in queue.state(limit=9)["readyKeys"]} == {"early": 2, "due": 2}
    assert [queue.take(), queue.take(), queue.take()] == ["early", "due", None]
    assert sample(name, "queue_duration_seconds_sum") == 2 + 2
    virtual.step(8)
    virtual.step(3)
    assert queue.take() == "later"
    assert sample(name, "queue_duration_seconds_sum") == 2 + 2 + 3


@pytest.mark.guarantee("M-4")
def test_until_it_is_started_a_queue_holds_keys_of_what_exists_alone(virtual: VirtualClock) -> None:
    """A replica that stands by keeps no key of all that was there in weeks, whatever comes after its deletion."""
    name, there = "test-queue-gone", set[str]()
    metrics = WorkQueueMetrics(name)
    queue = WorkQueue(clock=virtual, backoff=exact_backoff(), metrics=metrics, exists=there.__contains__)
    for number in range(3000):
        key = f"team/job-{number}"
        there.add(key)
        queue.add_after(key, 10)
        queue.add(key, priority=100)
        there.discard(key)
        queue.add(key)
        queue.add_after(key, 10)
    assert (len(queue), queue.state(limit=9)["delayed"], sample(name, "depth", priority="100")) == (0, 0, 0)
    there |= {"stays", "later"}
    queue.add("stays")
    queue.add("later", priority=100)
    assert queue.take() is None
    there.clear()
    queue.start()
    assert drain(queue) == ["later", "stays"]
    queue.add("gone meanwhile")
    assert drain(queue) == ["gone meanwhile"], "who works on keys has something to forget"


@pytest.mark.guarantee("W-31")
def test_histograms_have_the_buckets_of_upstream(virtual: VirtualClock) -> None:
    name = "test-queue-buckets"
    WorkQueue(clock=virtual, metrics=WorkQueueMetrics(name))
    for family in ("queue_duration_seconds", "work_duration_seconds"):
        edges = [
            float(found.labels["le"])
            for metric in REGISTRY.collect()
            for found in metric.samples
            if found.name == f"workqueue_{family}_bucket" and found.labels["name"] == name
        ]
        assert edges == pytest.approx([*(1e-8 * 10**exponent for exponent in range(12)), float("inf")])


@pytest.mark.guarantee("W-30")
def test_priorities_in_metrics_are_bounded(virtual: VirtualClock) -> None:
    name = "test-queue-priorities"
    queue = WorkQueue(clock=virtual, metrics=WorkQueueMetrics(name))
    for priority in range(40):
        queue.add(f"k{priority}", priority=priority)
    assert sample(name, "depth", priority="24") == 1
    assert sample(name, "depth", priority="39") is None
    assert sample(name, "depth", priority="exceeded_cardinality_limit") == 15


@pytest.mark.guarantee("W-10")
def test_backoff_reaches_its_cap_and_never_overflows() -> None:
    backoff = KeyedBackoff(random=lambda: 0.0)
    delays = [backoff.next_delay("a") for _ in range(5000)]
    assert delays[-1] == 1000.0
    assert max(delays) == 1000.0
    assert delays[17] == pytest.approx(0.005 * 2**17)
    assert backoff.next_delay("b") == 0.005


@pytest.mark.guarantee("W-15")
def test_jitter_spreads_and_the_cap_holds() -> None:
    rolls = iter([0.0, 0.5, 0.999] * 20)
    backoff = KeyedBackoff(random=lambda: next(rolls))
    delays = [backoff.next_delay("a") for _ in range(60)]
    assert all(delay <= 1000.0 for delay in delays)
    assert len({round(delay, 3) for delay in delays[-3:]}) == 3
    assert min(delays[-3:]) >= 900.0


@dataclass
class ModelKey:
    priority: int
    due: float
    order: int = -1


@dataclass
class Model:
    """The rules of W-1 to W-7 and W-20 to W-27, written the slow and obvious way."""

    now: float = 0.0
    counter: int = 0
    waiting: dict[str, ModelKey] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    raised_in_a_row: int = 0

    def line_up(self, item: ModelKey) -> None:
        self.counter += 1
        item.order = self.counter

    def add(self, key: str, priority: int, delay: float) -> None:
        due = self.now + max(delay, 0.0)
        item = self.waiting.get(key)
        if item is None:
            item = self.waiting[key] = ModelKey(priority, due)
            if due <= self.now:
                self.line_up(item)
            return
        was_ready = item.due <= self.now
        raised = priority > item.priority
        item.priority = max(item.priority, priority)
        item.due = min(item.due, due)
        if item.due <= self.now and (raised or not was_ready):
            self.line_up(item)

    def step(self, seconds: float) -> None:
        target = self.now + seconds
        coming = sorted((i for i in self.waiting.values() if self.now < i.due <= target), key=lambda i: i.due)
        for item in coming:
            self.line_up(item)
        self.now = target

    def take(self) -> str | None:
        ready = [
            (-item.priority, item.order, key)
            for key, item in self.waiting.items()
            if item.due <= self.now and key not in self.running
        ]
        if not ready:
            return None
        others = [each for each in ready if each[0] >= 0]
        key = min(others if others and self.raised_in_a_row >= RAISED_IN_A_ROW else ready)[2]
        self.raised_in_a_row = self.raised_in_a_row + 1 if self.waiting[key].priority > 0 else 0
        self.running[key] = self.waiting.pop(key).priority
        return key


KEYS = st.sampled_from("abcdef")
PRIORITIES = st.sampled_from([LOW_PRIORITY, 0, CHANGE_PRIORITY])


class UnevenBackoff(KeyedBackoff):
    """Adds to each delay what the test says."""

    extra = 0.0

    def next_delay(self, key: str) -> float:
        return super().next_delay(key) + self.extra


class QueueAgainstModel(RuleBasedStateMachine):
    """Any sequence of calls hands out the keys that the model hands out, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual = VirtualClock()
        self.backoff = UnevenBackoff(random=lambda: 0.0)
        self.queue = WorkQueue(clock=self.virtual, backoff=self.backoff)
        self.model = Model()
        self.failures: Counter[str] = Counter()
        self.ticks = 0

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: int) -> None:
        self.queue.add(key, priority=priority)
        self.model.add(key, priority, 0)

    @rule(key=KEYS, delay=st.integers(-1, 20), priority=PRIORITIES)
    def add_after(self, key: str, delay: int, priority: int) -> None:
        # Binary fractions that differ by call keep due times apart and sums exact, so that order is well defined.
        self.ticks += 1
        exact = delay + self.ticks * 2.0**-20 if delay > 0 else float(delay)
        self.queue.add_after(key, exact, priority=priority)
        self.model.add(key, priority, exact)

    @rule(seconds=st.integers(1, 10))
    def pass_time(self, seconds: int) -> None:
        self.virtual.step(seconds)
        self.model.step(seconds)

    @rule()
    def take(self) -> None:
        assert self.queue.take() == self.model.take()

    @precondition(lambda self: self.model.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.running)))
        del self.model.running[key]
        self.queue.done(key)

    @precondition(lambda self: self.model.running)
    @rule(data=st.data(), at_latest=st.none() | st.sampled_from([0.0, 0.5, 50.0]))
    def retry(self, data: st.DataObject, at_latest: float | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.running)))
        # Delays of 5 ms and its doubles are no binary fractions; keys that came to the same moment by different sums
        # would be a matter of rounding.
        self.ticks += 1
        delay = 0.005 * 2.0 ** self.failures[key] + self.ticks * 2.0**-20
        self.failures[key] += 1
        self.backoff.extra = self.ticks * 2.0**-20
        self.queue.add_rate_limited(key, at_latest=at_latest)
        self.model.add(key, self.model.running[key], delay if at_latest is None else min(delay, at_latest))

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        del self.failures[key]

    @invariant()
    def same_depth(self) -> None:
        assert len(self.queue) == sum(item.due <= self.model.now for item in self.model.waiting.values())

    @invariant()
    def same_keys(self) -> None:
        """W-1: a key waits once, and is worked on once."""
        state = self.queue.state(limit=100)
        ready = sorted(key for key, item in self.model.waiting.items() if item.due <= self.model.now)
        assert sorted(each["key"] for each in state["readyKeys"]) == ready
        assert sorted(each["key"] for each in state["runningKeys"]) == sorted(self.model.running)

    def teardown(self) -> None:
        """W-27: whatever waited, nothing is handed out after the end."""
        self.queue.shut_down()
        self.queue.add("late")
        assert self.queue.take() is None


@pytest.mark.guarantee(
    "W-1",
    "W-2",
    "W-3",
    "W-4",
    "W-5",
    "W-7",
    "W-12",
    "W-13",
    "W-14",
    "W-20",
    "W-21",
    "W-23",
    "W-24",
    "W-25",
    "W-26",
    "W-27",
    "W-29",
)
def test_any_sequence_of_calls_behaves_as_the_model() -> None:
    run_state_machine_as_test(QueueAgainstModel, settings=settings(stateful_step_count=60))
