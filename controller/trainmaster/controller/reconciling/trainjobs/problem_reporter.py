"""Telling: what the owner of a TrainJob and the logs get to hear of its problems.

Guarantees:
- An unchanged problem is told once; in other words it is told again after `RETELL_INTERVAL` at the earliest.
- F-8: nothing waits for an event, and nothing is decided from one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.reconciling.trainjobs.problems import CONTESTED_REASON, EVENT_ACTION, EVENT_REASON, Problem
from trainmaster.controller.reconciling.trainjobs.write_backoff import Dispute
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

RETELL_INTERVAL: Final = 30.0
"""Seconds before a problem is told again in other words. Messages of servers hold ports, times and request ids that
differ on every try; and each write of a status wakes the TrainJob up, past its backoff.
"""


@dataclass(frozen=True, slots=True)
class _Told:
    """A problem that the owner of a TrainJob was told of."""

    uid: str
    problem: Problem
    at: float


class Teller:
    """Remembers, by key, what was told last."""

    def __init__(self, recorder: EventRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._told: dict[str, _Told] = {}

    def reworded(self, key: str, raw: JsonObject, problem: Problem | None) -> Problem | None:
        """Return the problem, in its earlier words if those were told a short while ago."""
        told = self._told.get(key)
        if problem is None or told is None or told.uid != raw["metadata"]["uid"]:
            return problem
        recent = self._clock.monotonic() - told.at < RETELL_INTERVAL
        return told.problem if recent and told.problem.reason == problem.reason else problem

    def tell(self, key: str, raw: JsonObject, problem: Problem | None) -> None:
        """Tell of a problem, unless it was told already; None means that there is none any more."""
        if problem is None:
            self._told.pop(key, None)
            return
        uid = raw["metadata"]["uid"]
        told = self._told.get(key)
        if told is not None and (told.uid, told.problem) == (uid, problem):
            return
        self._told[key] = _Told(uid, problem, self._clock.monotonic())
        log.warning("the TrainJob is blocked", reason=problem.reason, message=problem.message)
        self._recorder.event(raw, type="Warning", reason=EVENT_REASON, action=EVENT_ACTION, note=problem.note())

    def contested(self, raw: JsonObject, what: str, dispute: Dispute) -> None:
        """Tell that somebody keeps undoing what we write."""
        log.warning(
            "our writes are undone again and again, writing less often from now on",
            object=what,
            fields=dispute.fields,
            managers=dispute.managers,
        )
        note = f"{what} does not stay as Trainmaster writes it, so it is written less often now; in dispute: {dispute}"
        self._recorder.event(raw, type="Warning", reason=CONTESTED_REASON, action=EVENT_ACTION, note=note)

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._told.pop(key, None)
