"""Which pods a running Job needs more, and which it has too many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from trainmaster.devcluster.controllers.job.pods import (
    NewPod,
    failures_of,
    finish_time,
    ignored_failures_of,
    is_active,
    is_ready,
    is_terminal,
    phase_of,
)
from trainmaster.devcluster.controllers.job.policies import match_failure
from trainmaster.devcluster.controllers.job.status import (
    Tally,
    is_failed,
    is_indexed,
    predecessors_of,
    replaces_failed_only,
    valid_index,
)
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.runtime.jsontree import JsonObject

_MAX_EXPONENT = 30  # beyond it every pause is longer than any sensible cap, and the power stays a small number


@dataclass(slots=True)
class Staffing:
    """Changes to the set of pods."""

    create: list[NewPod] = field(default_factory=list)
    remove: list[JsonObject] = field(default_factory=list)
    wait: float | None = None
    """Seconds after which more pods may be created."""

    def postpone(self, seconds: float) -> None:
        """Remember the shortest pause."""
        self.wait = seconds if self.wait is None else min(self.wait, seconds)


def staff(
    job: JsonObject, pods: Sequence[JsonObject], tally: Tally, *, settings: ControllerSettings, now: datetime
) -> Staffing:
    """Compare the pods of a Job that is neither suspended nor ending with those that it wants."""
    staffing = Staffing()
    active = [pod for pod in pods if is_active(pod)]
    if is_indexed(job):
        staffing.remove = _surplus_of_indexes(job, active)
        removed = {pod["metadata"]["uid"] for pod in staffing.remove}
        active = [pod for pod in active if pod["metadata"]["uid"] not in removed]
    leaving = _leaving(job, pods)
    missing = _wanted(job, active, tally) - len(active)
    if missing < 0:
        # The least advanced go first: not ready ones, then high indexes.
        by_progress = sorted(active, key=lambda pod: (is_ready(pod), -(valid_index(job, pod) or 0)))
        staffing.remove += by_progress[:-missing]
        return staffing
    missing -= len(leaving)
    if missing <= 0:
        return staffing
    if "backoffLimitPerIndex" in job["spec"]:
        _replace_by_index(job, pods, tally, staffing, missing=missing, settings=settings, now=now)
        return staffing
    pause = _pause(job, pods, settings=settings, now=now)
    if pause > 0:
        staffing.postpone(pause)
    elif is_indexed(job):
        taken = {valid_index(job, pod) for pod in [*active, *leaving]}
        staffing.create = [NewPod(index) for index in islice(_pending(job, tally, taken), missing)]
    else:
        staffing.create = [NewPod()] * missing
    return staffing


def _wanted(job: JsonObject, active: Sequence[JsonObject], tally: Tally) -> int:
    parallelism: int = job["spec"].get("parallelism", 1)
    completions: int | None = job["spec"].get("completions")
    if completions is None:
        return len(active) if tally.all_succeeded else parallelism
    return max(0, min(parallelism, completions - tally.all_succeeded - len(tally.failed_indexes - tally.completed)))


def _leaving(job: JsonObject, pods: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the pods that are being deleted and keep their place until they have ended."""
    if not replaces_failed_only(job):
        return []
    return [pod for pod in pods if is_terminating(pod) and not is_terminal(pod) and not is_failed(job, pod)]


def _surplus_of_indexes(job: JsonObject, active: Sequence[JsonObject]) -> list[JsonObject]:
    """Return pods without a valid index, and all but the most advanced pod of each index."""
    surplus, seen = [], set()
    for pod in sorted(active, key=lambda pod: (not is_ready(pod), phase_of(pod) != "Running")):
        index = valid_index(job, pod)
        if index is None or index in seen:
            surplus.append(pod)
        seen.add(index)
    return surplus


def _pending(job: JsonObject, tally: Tally, taken: set[int | None]) -> Iterator[int]:
    """Yield the indexes that still have to run, lowest first."""
    for index in range(job["spec"].get("completions", 0)):
        if index not in taken and index not in tally.completed and index not in tally.failed_indexes:
            yield index


def _pause(job: JsonObject, pods: Sequence[JsonObject], *, settings: ControllerSettings, now: datetime) -> float:
    """Return how long to wait before replacing a failed pod.

    Computed from the pods that ended, which stay until the Job goes: nothing to remember, nothing lost by a restart.
    """
    ended = [pod for pod in pods if is_terminal(pod) or is_failed(job, pod)]
    last_success = max((finish_time(pod) for pod in ended if phase_of(pod) == "Succeeded"), default=None)
    failures = [
        finish_time(pod)
        for pod in ended
        if phase_of(pod) != "Succeeded" and (last_success is None or finish_time(pod) > last_success)
    ]
    return _backoff(len(failures), max(failures), settings=settings, now=now) if failures else 0.0


def _backoff(failures: int, last: datetime, *, settings: ControllerSettings, now: datetime) -> float:
    pause = settings.job_backoff_base * float(2 ** min(failures - 1, _MAX_EXPONENT))
    return min(pause, settings.job_backoff_cap) - (now - last).total_seconds()


def _replace_by_index(
    job: JsonObject,
    pods: Sequence[JsonObject],
    tally: Tally,
    staffing: Staffing,
    *,
    missing: int,
    settings: ControllerSettings,
    now: datetime,
) -> None:
    """Plan pods for the lowest pending indexes; each index has its own count of failures and its own pause."""
    taken: set[int | None] = {valid_index(job, pod) for pod in pods if is_active(pod)}
    taken |= {valid_index(job, pod) for pod in _leaving(job, pods)}
    latest: dict[int | None, JsonObject] = {}
    for pod in sorted(pods, key=predecessors_of):
        if is_failed(job, pod):
            latest[valid_index(job, pod)] = pod
    for index in _pending(job, tally, taken):
        if len(staffing.create) == missing:
            return
        last = latest.get(index)
        if last is None:
            staffing.create.append(NewPod(index, failures=0))
            continue
        pause = _backoff(predecessors_of(last) + 1, finish_time(last), settings=settings, now=now)
        if pause > 0:
            staffing.postpone(pause)
            continue
        match = match_failure(job, last) if phase_of(last) == "Failed" else None
        ignored = match is not None and match.action == "Ignore"
        staffing.create.append(NewPod(index, failures_of(last) + (not ignored), ignored_failures_of(last) + ignored))
