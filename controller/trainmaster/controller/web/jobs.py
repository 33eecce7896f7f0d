"""What there is to show: jobs as the caches have them, and what the history knows of them and of others.

Guarantees:
- No request is sent. However many jobs there are, one page looks at `MOST_LIVE` of each kind at most, those that came
  last; others get their turn on the event loop meanwhile, and what was left out is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Finding
from trainmaster.controller.explain.state import state_of
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.history.job_objects import record_of
from trainmaster.controller.history.query import Query
from trainmaster.controller.history.record import DELETED, RESULTS, SUCCEEDED, JobRecord, merged
from trainmaster.controller.history.store import HistoryReader
from trainmaster.controller.job_fields import conditions_of
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.cache.store import split_key
from trainmaster.controller.kube.clock import Clock
from trainmaster.runtime.api.constants import COMPLETE
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

MOST_LIVE: Final = 1000
"""Of each kind."""

MOST_SHOWN: Final = 200
_AT_ONCE: Final = 25
_FINDINGS: Final = 3


Workloads = Callable[[JsonObject], Iterable[JsonObject]]
"""Returns what a TrainJob became."""


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job."""

    record: JobRecord
    state: str
    """One of `explain.state.WORDS`."""

    conditions: Sequence[JsonObject] = ()
    """As the cluster has them; of a job that is gone none."""

    is_live: bool = False
    """Whether the cluster has it."""

    findings: Sequence[Finding] = ()
    """Why it is as it is, the likeliest cause first, as far as the caches tell: pods and events are not among them."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Some jobs: those that have not ended first, then those that ended last."""

    jobs: Sequence[ShownJob]
    left_out: int
    """Of the jobs that the cluster has, how many were not looked at."""

    more: bool
    """Whether there are more than are shown."""


class Jobs:
    """All jobs.

    Args:
        reader: The history; None if there is none.
    """

    def __init__(
        self,
        informers: Iterable[tuple[str, Informer]],
        *,
        workloads: Workloads,
        reader: HistoryReader | None,
        user_key: str,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._informers = dict(informers)
        self._workloads = workloads
        self._reader = reader
        self._user_key = user_key

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have jobs, or had some that are recorded.

        Raises:
            HistoryUnavailable: The history cannot be read.
        """
        found = {str(split_key(key)[0]) for informer in self._informers.values() for key in _keys(informer)}
        return sorted(found | set(await self._reader.namespaces() if self._reader is not None else ()))

    async def listing(self, namespaces: Collection[str] | None, state: str, *, recorded: bool = True) -> Listing:
        """Return jobs.

        Args:
            namespaces: Those of these namespaces; None: all.
            state: Only those in this state; empty: all.
            recorded: Whether those of the history as well.

        Raises:
            HistoryUnavailable: The history cannot be read.
        """
        wanted = None if namespaces is None else frozenset(namespaces)
        keys, left_out = list[tuple[Informer, str]](), 0
        for informer in self._informers.values():
            of_it = [key for key in _keys(informer) if wanted is None or split_key(key)[0] in wanted]
            # What came last is at the end.
            keys += [(informer, key) for key in of_it[-MOST_LIVE:]]
            left_out += max(0, len(of_it) - MOST_LIVE)
        found: dict[str, ShownJob] = {}
        for number, (informer, key) in enumerate(keys):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            job = informer.store.get(key)
            if job is not None and why_unreadable(job) is None:
                shown = self._live(job, whole=False)
                found[shown.record.uid] = shown
        result = SUCCEEDED if state == COMPLETE else state
        if self._reader is not None and recorded and result in ("", *RESULTS):
            query = Query(namespaces=namespaces, result=result, limit=MOST_SHOWN + 1)
            for record in (await self._reader.find(query))[0]:
                if record.uid not in found:
                    found[record.uid] = ShownJob(record, record.state)
        chosen = [each for each in found.values() if not state or each.state == state]
        ongoing = [each for each in chosen if not each.record.has_ended]
        ended = [each for each in chosen if each.record.has_ended]
        ongoing.sort(key=lambda each: (each.record.created, each.record.name), reverse=True)
        ended.sort(key=lambda each: (each.record.ended, each.record.name), reverse=True)
        ordered = [*ongoing, *ended]
        return Listing(ordered[:MOST_SHOWN], left_out, len(ordered) > MOST_SHOWN)

    async def job(self, kind: str, namespace: str, name: str, uid: str, *, recorded: bool = True) -> ShownJob | None:
        """Return all that is known of a job, or all but what the history knows; None if nothing is.

        Raises:
            HistoryUnavailable: The history cannot be read.
        """
        record = await self._reader.get(uid) if self._reader is not None and recorded else None
        if record is not None and (record.kind, record.namespace, record.name) != (kind, namespace, name):
            record = None
        informer = self._informers.get(kind)
        live = informer.store.get(f"{namespace}/{name}") if informer is not None else None
        if live is not None and live["metadata"].get("uid") == uid and why_unreadable(live) is None:
            shown = self._live(live, whole=True)
            whole = shown.record if record is None else merged(record, shown.record)
            return replace(shown, record=whole)
        return None if record is None else ShownJob(record, record.state or DELETED)

    def _live(self, job: JsonObject, *, whole: bool) -> ShownJob:
        """Return a job of the cluster; what its workload tells only if all of it is wanted."""
        workloads = list(self._workloads(job)) if whole else []
        record = record_of(job, workloads, user_key=self._user_key)
        view = JobView(job, now=self._clock.now(), jobsets=workloads or None)
        state = state_of(view).word
        if not whole:
            return ShownJob(record, state, is_live=True)
        findings = explain(view).findings[:_FINDINGS]
        return ShownJob(record, state, conditions_of(job), is_live=True, findings=findings)


def _keys(informer: Informer) -> list[str]:
    return informer.store.keys() if informer.has_synced else []
