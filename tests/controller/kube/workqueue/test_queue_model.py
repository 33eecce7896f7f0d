"""Any sequence of calls behaves as a model of the queue that is too simple to be wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.workqueue.queue import (
    CHANGE_PRIORITY,
    LOW_PRIORITY,
    RAISED_IN_A_ROW,
    KeyedBackoff,
    WorkQueue,
)


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
