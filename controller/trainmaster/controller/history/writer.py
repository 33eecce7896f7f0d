"""The writer: a bounded queue of records, and the thread that takes them to the store.

Guarantees:
- `put` never waits and never blocks: a record of a job takes the place of the one that waits, and if there is no room
  it is refused, counted, and `wants_resync` says that somebody should begin anew.
- A record that cannot be stored costs itself and no other: it is counted and told of once, and given up.
- A store that cannot be used costs nothing but its records: it is tried again, after longer and longer pauses, and
  log, metric and readiness say so. What waits is kept meanwhile.
- The event loop is never blocked: everything that takes time happens in the thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from trainmaster.controller.history.record import JobRecord, merged
from trainmaster.controller.history.store import HistoryStore, HistoryUnavailable
from trainmaster.controller.kube.clock import Clock
from trainmaster.metrics import history as series

log = structlog.get_logger(__name__)

CAPACITY: Final = 2000
"""Records that wait; some MB at most, since few are as long as they may be."""

_BATCH: Final = 200
_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_PRUNE_INTERVAL: Final = 600.0
_PRUNE_AFTER: Final = 1000
"""Records that were written since the last time: so far above its bound the history may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is kept of the history."""

    records: int
    """Ended jobs at most."""

    age: timedelta
    """Since their end at most."""


class HistoryWriter:
    """Writes records in a thread of its own.

    Args:
        store: Where they are written; only by this thread.
    """

    def __init__(self, store: HistoryStore, bounds: Bounds, *, clock: Clock, capacity: int = CAPACITY) -> None:
        self._store = store
        self._bounds = bounds
        self._clock = clock
        self._capacity = capacity
        self._changed = threading.Condition()
        self._records: dict[str, JobRecord] = {}
        self._work: dict[str, Callable[[HistoryStore], object]] = {}
        """What else to do with the store, by kind of jobs."""

        self._closing = False
        self._problem: str | None = None
        self._pause = 0.0
        self._written = 0
        self._pruned_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self.wants_resync = threading.Event()
        """Set when a record was refused: what is missing has to be recorded again as soon as there is room."""

    @property
    def problem(self) -> str | None:
        """Why the store cannot be used; None if it can, as far as is known."""
        return self._problem

    @property
    def has_room(self) -> bool:
        """Whether there is room for more."""
        return len(self._records) < self._capacity

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def put(self, record: JobRecord) -> bool:
        """Have a record written; returns whether there was room for it."""
        with self._changed:
            waiting = self._records.get(record.uid)
            if waiting is None and not self.has_room:
                series.LOST.inc()
                self.wants_resync.set()
                return False
            self._records[record.uid] = record if waiting is None else merged(waiting, record)
            series.QUEUED.set(len(self._records))
            self._changed.notify()
            return True

    def end_missing(self, live: Collection[str], *, kind: str, namespaces: Collection[str]) -> None:
        """Have the jobs of a kind ended that are not there any more (see the store).

        Args:
            namespaces: The namespaces of which that is all; none: all.
        """
        now = self._clock.now()
        with self._changed:
            self._work[kind] = partial(HistoryStore.end_missing, live=live, kind=kind, namespaces=namespaces, now=now)
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Write what waits, for so long at most, and end; blocks."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        if self._thread.is_alive() or self._records:
            log.warning("some of the history was not written any more", records=len(self._records))

    # The thread

    def _run(self) -> None:
        try:
            while self._wait():
                self._write()
        finally:
            self._store.close()
            series.STORE_FAILING.set(0)

    def _wait(self) -> bool:
        """Wait until there is something to do; returns False at the end."""
        with self._changed:
            if self._pause:
                self._changed.wait_for(lambda: self._closing, self._pause)
            elif self._pruned_at is not None:  # the first time it looks whether the store can be used at all
                self._changed.wait_for(lambda: self._closing or self._records or self._work, _PRUNE_INTERVAL)
            return not self._closing or bool(not self._problem and (self._records or self._work))

    def _write(self) -> None:
        with self._changed:
            batch = dict(list(self._records.items())[:_BATCH])
            work = dict(self._work)
        now = self._clock.now()
        try:
            if batch:
                self._written += (written := self._store_all(list(batch.values()), now))
                series.WRITTEN.inc(written)
            if not self._more_than(batch):
                # Only then: what is not there any more may have come with the last record.
                for end_missing in work.values():
                    end_missing(self._store)
            else:
                work.clear()
            self._prune(now)
        except HistoryUnavailable as error:
            self._fail(str(error))
        except Exception as error:  # a defect of ours must not end the thread
            log.error("the history could not be written", error=str(error), exc_info=error)
            self._fail(f"{type(error).__name__}: {error}")
        else:
            with self._changed:
                for record in batch.values():
                    self._forget(record)
                for kind, end_missing in work.items():
                    if self._work.get(kind) is end_missing:
                        del self._work[kind]
            self._succeed()

    def _store_all(self, records: Sequence[JobRecord], now: datetime) -> int:
        """Store records in one transaction; returns how many were new or changed.

        Where one of them cannot be stored (it has no form in which it could be, or does not go with what is stored of
        its job), each is stored by itself, so that it is found and given up.
        """
        try:
            return self._store.write(records, now=now)
        except HistoryUnavailable:
            raise
        except Exception as error:
            if len(records) > 1:
                return sum(self._store_all([record], now) for record in records)
            self._give_up(records[0], error)
            return 0

    def _give_up(self, record: JobRecord, error: Exception) -> None:
        job = f"{record.namespace}/{record.name}"
        log.error("a record of a job cannot be written", job=job, error=str(error), exc_info=error)
        series.LOST.inc()
        with self._changed:
            self._forget(record)

    def _forget(self, record: JobRecord) -> None:
        """Take a record from what waits, unless a newer one has taken its place; with the lock."""
        if self._records.get(record.uid) is record:
            del self._records[record.uid]
        series.QUEUED.set(len(self._records))

    def _more_than(self, batch: Mapping[str, JobRecord]) -> bool:
        with self._changed:
            return any(self._records.get(uid) is not record for uid, record in batch.items()) or len(
                self._records
            ) > len(batch)

    def _prune(self, now: datetime) -> None:
        monotonic = time.monotonic()
        if (
            self._pruned_at is None
            or monotonic - self._pruned_at >= _PRUNE_INTERVAL
            or self._written >= min(_PRUNE_AFTER, self._bounds.records)
        ):
            removed = self._store.prune(most=self._bounds.records, before=now - self._bounds.age)
            series.PRUNED.inc(removed)
            self._pruned_at, self._written = monotonic, 0

    def _fail(self, problem: str) -> None:
        series.STORE_FAILING.set(1)
        if problem != self._problem:
            log.error("the history is not recorded", error=problem, waiting=len(self._records))
        self._problem = problem
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _SHORTEST_PAUSE)

    def _succeed(self) -> None:
        series.STORE_FAILING.set(0)
        if self._problem is not None:
            log.info("the history is recorded again")
        self._problem, self._pause = None, 0.0
