"""The work queue: which key is worked on next; client-go's rate limiting, delaying and priority queue in one.

Guarantees:
- W-1: a key waits in one place at most, and what can be handed out is not being worked on.
- W-2: adding a key that waits already changes nothing, except that its priority may rise.
- W-3: a key is never worked on by two workers at once, and never lost: adding it while it is worked on brings it back
  when the worker is done.
- W-4: `get` takes a key in one step; without its `done` it is not handed out again.
- W-5, W-20: higher priorities first; within one priority first in, first out; workers are served in order as well.
- W-29: of four keys in a row, one at least has no raised priority, if there is such a key. Those with a raised one so
  wait for few others, however many there are, and can starve none.
- W-27, W-28: after `shut_down` additions are ignored, what waits is dropped, and every `get` raises `ShutDown`. Nobody
  is left waiting, whatever happens at the same time.
- W-7, W-21: a delayed key only ever moves to an earlier time; one that is ready stays ready. A key whose priority rises
  goes to the end of its new priority.
- W-8: there is one timer, for the earliest delayed key; ties come out in the order in which they were set.
- W-10: the delay of retries doubles per key from 5 ms to 1000 s, without overflow.
- W-12, W-13: retries are rate-limited for each key by itself; `forget` starts that key over. Events are not.
- W-14: there is no bucket shared by all keys: after a mass failure each key recovers at its own pace.
- W-15: jitter only ever shortens a delay: keys that failed together drift apart, also at the cap, and it holds.
- W-22: `LOW_PRIORITY` is for what is not new, `CHANGE_PRIORITY` for changes of what others made of it.
- W-23: a delayed key takes its place in the order when it becomes ready.
- W-24: a key that is worked on may wait in the queue, but is not handed out before `done`.
- W-25: of the backoff and a latest time, the earlier counts.
- W-26: retries keep the priority of the key unless told otherwise.
- M-4: until it is started, a queue that can tell what exists holds keys of nothing else: a replica that stands by for
  weeks would keep the keys of all that was there meanwhile.

The state changes synchronously, in the event loop that owns the queue; only `get` waits.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random as randomness
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from trainmaster.controller.kube.clock import Clock, Random, SystemClock, Timer
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.runtime.jsontree import JsonObject

LOW_PRIORITY: Final = -100
"""The priority of keys from the initial list and from resyncs (W-22)."""


CHANGE_PRIORITY: Final = 100
"""The priority of keys of which something has changed that was there before: somebody waits for that, and a burst of
what is new must not hold it up. It is raised: above 0."""

RAISED_IN_A_ROW: Final = 3
"""So many keys of a raised priority are handed out before one of the others (W-29).

A share and not an age from which a key would overtake others: in a burst thousands are of that age, and changes would
wait for all of them again.
"""


_BASE_DELAY: Final = 0.005
_MAX_DELAY: Final = 1000.0
_JITTER: Final = 0.1
"""Seconds, seconds, and the part of them by which a delay is shorter at most (W-10, W-15)."""

_DOUBLINGS_AT_MOST: Final = 62
"""More doublings than this exceed any cap; it keeps the power small for keys that fail for days."""

_VOID: Final = -1
"""A ticket that no place has."""

_VOID_PLACES: Final = 1000
"""So many void places are not worth a sweep."""


class ShutDown(Exception):
    """The queue hands out no more keys."""


class KeyedBackoff:
    """Exponential delays, counted for each key; client-go's ItemExponentialFailureRateLimiter."""

    def __init__(self, *, random: Random = randomness.random) -> None:
        self._random = random
        self._failures: dict[str, int] = {}

    def next_delay(self, key: str) -> float:
        """Count one more failure of `key` and return how long to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(_BASE_DELAY * 2.0 ** min(failures, _DOUBLINGS_AT_MOST), _MAX_DELAY)
        return delay * (1.0 - _JITTER * self._random())

    def failures(self, key: str) -> int:
        """Return how often `key` has failed since it was last forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: str) -> None:
        """Forget the failures of `key`."""
        self._failures.pop(key, None)


@dataclass(slots=True, eq=False)
class _Entry:
    """A key that waits: for its time if `due` is set, else for a worker."""

    key: str
    priority: int
    due: float | None
    ready_since: float = 0.0
    ticket: int = _VOID
    """The place that counts, in a line or among the delayed; older places of the same entry are void."""


_Places: TypeAlias = list[tuple[float, int, _Entry]]
"""A heap: what comes first, tickets, and the entries."""


@dataclass(slots=True)
class _Running:
    """A key that a worker has."""

    priority: int
    since: float


class WorkQueue:
    """Keys to work on, for one controller and any number of workers.

    Args:
        exists: Tells whether there is what a key names; without it the queue is started from the beginning.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        backoff: KeyedBackoff | None = None,
        metrics: WorkQueueMetrics | None = None,
        exists: Callable[[str], bool] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._exists = exists
        self._started = exists is None
        self._backoff = backoff or KeyedBackoff()
        self._metrics = metrics
        self._entries: dict[str, _Entry] = {}
        self._running: dict[str, _Running] = {}
        self._ready: _Places = []
        self._raised: _Places = []
        """The line of the raised priorities."""

        self._raised_in_a_row = 0
        self._delayed: _Places = []
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._tickets = itertools.count()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        if metrics is not None:
            metrics.follow_running(self._ages)

    def __len__(self) -> int:
        """Count the keys that are ready to be worked on, those that are also being worked on included."""
        return sum(entry.due is None for entry in self._entries.values())

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def add(self, key: str, *, priority: int = 0) -> None:
        """Have `key` worked on as soon as possible."""
        self._add(key, priority=priority, due=None)

    def add_after(self, key: str, delay: float, *, priority: int | None = None) -> None:
        """Have `key` worked on after `delay` seconds, or before if it is added otherwise."""
        if priority is None:
            priority = self._current_priority(key)
        if delay > 0 and self._metrics is not None and not self._closed:
            self._metrics.retries.inc()
        self._add(key, priority=priority, due=self._clock.monotonic() + delay if delay > 0 else None)

    def add_rate_limited(self, key: str, *, at_latest: float | None = None, priority: int | None = None) -> None:
        """Have `key` worked on after a delay that doubles with each call until `forget`, or after `at_latest`."""
        delay = self._backoff.next_delay(key)
        self.add_after(key, delay if at_latest is None else min(delay, at_latest), priority=priority)

    def retry_now(self) -> None:
        """Have all keys that wait after a failure worked on: what they failed for may be over."""
        for entry in list(self._entries.values()):
            if entry.due is not None and self._backoff.failures(entry.key):
                self._add(entry.key, priority=entry.priority, due=None)

    def start(self) -> None:
        """Hand out keys, and count how long they wait, from now on: there was no worker who could have taken them."""
        now, was_started, self._started = self._clock.monotonic(), self._started, True
        for entry in self._entries.values():
            entry.ready_since = now
            if entry.due is None and not was_started:
                self._push(entry)

    def forget(self, key: str) -> None:
        """Let the delays of `add_rate_limited` start over for `key`."""
        self._backoff.forget(key)

    async def get(self) -> str:
        """Wait for a key and take it; `done` must be called for it, whatever happens."""
        while True:
            key = self.take()
            if key is not None:
                return key
            if self._closed:
                raise ShutDown
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # The wake-up may have come together with the cancellation; it is for a key, so pass it on.
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise

    def take(self) -> str | None:
        """Take the next key if one is ready, without waiting."""
        if self._closed:
            return None
        self._promote()
        while line := self._next_line():
            _, ticket, entry = heapq.heappop(line)
            if entry.ticket != ticket:
                continue
            self._raised_in_a_row = self._raised_in_a_row + 1 if line is self._raised else 0
            now = self._clock.monotonic()
            del self._entries[entry.key]
            self._running[entry.key] = _Running(entry.priority, now)
            if self._metrics is not None:
                self._metrics.taken(entry.priority, now - entry.ready_since)
            return entry.key
        return None

    def done(self, key: str) -> None:
        """Say that the work on `key` has ended; if it was added meanwhile, it is handed out again."""
        running = self._running.pop(key, None)
        if running is None:
            raise ValueError(f"done({key!r}) without a matching get: the key is not being worked on")
        if self._metrics is not None:
            self._metrics.work_duration.observe(self._clock.monotonic() - running.since)
        entry = self._entries.get(key)
        if entry is not None and entry.due is None:
            # The place it got when it was added: those who came later stay behind it.
            self._push(entry)

    def state(self, *, limit: int) -> JsonObject:
        """Return what the queue holds, for people: counts, and of each state the first keys."""
        now = self._clock.monotonic()
        entries = self._entries.values()
        ready = [entry for entry in entries if entry.due is None]
        delayed = [entry for entry in entries if entry.due is not None]

        def shown(key: str, **fields: float) -> JsonObject:
            return {"key": key, **fields, "retries": self._backoff.failures(key)}

        return {
            "ready": len(ready),
            "delayed": len(delayed),
            "running": len(self._running),
            "shutDown": self._closed,
            "readyKeys": [
                shown(entry.key, priority=entry.priority, waitedSeconds=round(now - entry.ready_since, 3))
                for entry in heapq.nsmallest(limit, ready, key=lambda each: (-each.priority, each.ticket))
            ],
            "delayedKeys": [
                shown(entry.key, priority=entry.priority, dueInSeconds=round((entry.due or 0.0) - now, 3))
                for entry in heapq.nsmallest(limit, delayed, key=lambda each: (each.due or 0.0, each.key))
            ],
            "runningKeys": [
                shown(key, priority=running.priority, runningSeconds=round(now - running.since, 3))
                for key, running in heapq.nsmallest(limit, self._running.items(), key=lambda each: each[1].since)
            ],
        }

    def shut_down(self) -> None:
        """End the queue: what waits is dropped, and so is all that comes."""
        self._closed = True
        for entry in self._entries.values():
            if entry.due is None and self._metrics is not None:
                self._metrics.dropped(entry.priority)
        self._entries.clear()
        self._delayed.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ready.clear()
        self._raised.clear()
        while self._waiters:
            self._wake()

    def _add(self, key: str, *, priority: int, due: float | None) -> None:
        if self._closed:
            return
        entry = self._entries.get(key)
        if not self._started and self._exists is not None and not self._exists(key):
            if entry is not None:
                self._drop(entry)
            return
        if entry is None:
            entry = self._entries[key] = _Entry(key, priority, due)
            if due is None:
                self._make_ready(entry)
            else:
                self._delay(entry, due)
            return
        raised = priority > entry.priority
        old_priority, entry.priority = entry.priority, max(entry.priority, priority)
        if entry.due is None:
            if raised:
                if self._metrics is not None:
                    self._metrics.moved(old_priority, entry.priority)
                self._line_up(entry)
        elif due is None:
            self._make_ready(entry)
        elif due < entry.due:
            self._delay(entry, due)

    def _drop(self, entry: _Entry) -> None:
        """Forget a key that waits in a queue that is not started."""
        del self._entries[entry.key]
        entry.ticket = _VOID
        if entry.due is None and self._metrics is not None:
            self._metrics.dropped(entry.priority)

    def _make_ready(self, entry: _Entry) -> None:
        entry.due = None
        entry.ready_since = self._clock.monotonic()
        if self._metrics is not None:
            self._metrics.queued(entry.priority)
        self._line_up(entry)

    def _line_up(self, entry: _Entry) -> None:
        """Put a ready key at the end of its priority; while it is worked on, or nothing is, only note its place."""
        entry.ticket = next(self._tickets)
        if self._started and entry.key not in self._running:
            self._push(entry)

    def _push(self, entry: _Entry) -> None:
        heapq.heappush(self._raised if entry.priority > 0 else self._ready, (-entry.priority, entry.ticket, entry))
        self._wake()

    def _next_line(self) -> _Places:
        """Return the line that is served next; an empty one if all are."""
        if self._raised and (self._raised_in_a_row < RAISED_IN_A_ROW or not self._ready):
            return self._raised
        return self._ready

    def _delay(self, entry: _Entry, due: float) -> None:
        entry.due, entry.ticket = due, next(self._tickets)
        heapq.heappush(self._delayed, (due, entry.ticket, entry))
        if len(self._delayed) > 2 * len(self._entries) + _VOID_PLACES:
            # A key that is always added before its long delay ends would pile them up.
            self._delayed = [place for place in self._delayed if place[2].ticket == place[1]]
            heapq.heapify(self._delayed)
        self._set_timer()

    def _promote(self) -> None:
        """Make ready what is due."""
        now = self._clock.monotonic()
        while self._delayed:
            due, ticket, entry = self._delayed[0]
            is_void = entry.ticket != ticket
            if due > now and not is_void:
                break
            heapq.heappop(self._delayed)
            if not is_void:
                self._make_ready(entry)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._delayed:
            return
        due = self._delayed[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._promote()

    def _wake(self) -> None:
        """Wake the worker that has waited longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _current_priority(self, key: str) -> int:
        running = self._running.get(key)
        return running.priority if running is not None else 0

    def _ages(self) -> list[float]:
        now = self._clock.monotonic()
        return [now - running.since for running in self._running.values()]
