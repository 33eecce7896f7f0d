"""The recorder: sees what the caches see of jobs, and has a record written of each state that matters.

Guarantees:
- Only the leader writes. What ended, or was deleted, while nobody led is recorded when somebody does: what ended from
  the caches, what is gone from what was recorded before. Whatever is recorded twice is there once.
- The reconcilers do not know of it. An event that changes nothing that matters costs some comparisons, and no event
  ever waits: see `writer`.
- Of each job that has not ended some hundred bytes are remembered; after a restart nothing has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from trainmaster.controller.history.job_objects import (
    deleted_record,
    is_ready,
    progress_of,
    record_of,
)
from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.history.writer import HistoryWriter
from trainmaster.controller.job_fields import JobFields, conditions_of
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

_LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks whether there is room in the queue, or something to record again."""

_AT_ONCE: Final = 50
"""Jobs that are read in one go, before others get their turn."""

_STEP: Final = 5
"""Percent of progress between two samples."""

_TEN_MINUTES: Final = len("2026-01-01T00:0")
"""Of a time; where no percentage is reported, a sample is taken so often."""

Workloads = Callable[[JsonObject], Iterable[JsonObject]]
"""Returns what a TrainJob became."""


@dataclass(slots=True)
class _Seen:
    """What was seen of a job that has not ended."""

    uid: str
    signature: int = 0
    was_ready: bool = False
    started: str = ""


class HistoryRecorder:
    """Records jobs.

    Args:
        namespaces: The namespaces that are served; none: all.
    """

    def __init__(
        self,
        writer: HistoryWriter,
        *,
        workloads: Workloads,
        user_key: str,
        namespaces: Sequence[str] = (),
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._workloads = workloads
        self._user_key = user_key
        self._namespaces = namespaces
        self._clock = clock
        self._is_leading = False
        self._informers: list[tuple[str, Informer]] = []
        self._seen: dict[tuple[str, str], _Seen] = {}
        """By kind and key."""

    def watch(self, kind: str, informer: Informer) -> None:
        """Record the jobs of an informer."""
        self._informers.append((kind, informer))
        informer.add_event_handler(partial(self._on_event, kind))

    async def lead(self) -> None:
        """Record while this process leads, until cancelled."""
        self._is_leading = True
        try:
            due = list(self._informers)
            while True:
                # The caches of other kinds of jobs are filled later, or never: nobody waits for them.
                for each in [each for each in due if each[1].has_synced]:
                    due.remove(each)
                    await self._record_all(*each)
                await self._clock.sleep(_LOOK_INTERVAL)
                if self._writer.wants_resync.is_set() and self._writer.has_room and not self._writer.problem:
                    self._writer.wants_resync.clear()
                    due = list(self._informers)
        finally:
            self._is_leading = False

    async def _record_all(self, kind: str, informer: Informer) -> None:
        """Record all jobs of a kind as they are, and end those that are gone; waits for room in the queue."""
        for number, key in enumerate(informer.store.keys()):
            while not self._writer.has_room:
                await self._clock.sleep(_LOOK_INTERVAL)
            if number % _AT_ONCE == 0:
                await self._clock.sleep(0)
            job = informer.store.get(key)
            if job is not None and why_unreadable(job) is None:
                self._writer.put(self._record(kind, key, job))
        uids = {uid for key in informer.store.keys() if (uid := informer.store.uid(key))}  # noqa: SIM118 - no mapping
        self._writer.end_missing(uids, kind=kind, namespaces=self._namespaces)

    def _on_event(self, kind: str, event: Delta) -> None:
        if event.resync:
            return
        if event.is_deletion:
            seen = self._seen.pop((kind, event.key), None)
            if event.old is not None:
                self._record_deletion(event.old, seen)
            return
        job = event.new
        if job is None or why_unreadable(job) is not None:
            return
        before = self._seen.get((kind, event.key))
        if before is not None and before.uid != _uid(job) and event.old is not None:
            # It was deleted and created again, and we saw one change of both (S-4).
            self._record_deletion(event.old, before)
        changed = self._look(kind, event.key, job, initial=event.initial)
        # What was there at the start is recorded by whoever leads, all of it at once, with room for it.
        if changed and self._is_leading and not event.initial:
            self._writer.put(self._record(kind, event.key, job))

    def _look(self, kind: str, key: str, job: JsonObject, *, initial: bool) -> bool:
        """Take note of a state; returns whether it differs from the one before in what matters."""
        uid = _uid(job)
        seen = self._seen.get((kind, key))
        if seen is None or seen.uid != uid:
            seen = self._seen[kind, key] = _Seen(uid)
        if not seen.was_ready and is_ready(job):
            # Of what was ready when we came nobody knows since when.
            seen.was_ready, seen.started = True, "" if initial else self._now()
        fields = JobFields(job)
        conditions = tuple((each["type"], each["status"], each.get("message")) for each in conditions_of(job))
        signature = hash((conditions, fields.is_terminating, bool(fields.parts), seen.was_ready, _step_of(job)))
        changed = signature != seen.signature
        seen.signature = signature
        return changed

    def _record(self, kind: str, key: str, job: JsonObject) -> JobRecord:
        seen = self._seen.get((kind, key))
        started = seen.started if seen is not None and seen.uid == _uid(job) else ""
        return record_of(job, self._workloads(job), started=started, user_key=self._user_key)

    def _record_deletion(self, job: JsonObject, seen: _Seen | None) -> None:
        if not self._is_leading or why_unreadable(job) is not None:
            return
        self._writer.put(
            deleted_record(
                job,
                self._workloads(job),
                at=self._now(),
                started=seen.started if seen is not None else "",
                user_key=self._user_key,
            )
        )

    def _now(self) -> str:
        return time_text(self._clock.now())


def _uid(job: JsonObject) -> str:
    return str(job["metadata"].get("uid") or "")


def _step_of(job: JsonObject) -> object:
    """Return what changes when there is a sample of the progress to take."""
    reported = progress_of(job)
    if reported is None:
        return None
    return reported.time[:_TEN_MINUTES] if reported.percentage is None else reported.percentage // _STEP
