"""The timeline of a job: what happened when, the oldest first, as far as its objects tell. Pure.

It is bounded: pods are told of together, failures and warnings up to a number. What was longest ago and what was last
is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final

from trainmaster.controller.conditions import CONTAINER_FAILED
from trainmaster.controller.container_failures import (
    OOM_KILLED,
    ContainerFailure,
    container_failures,
    last_run,
    restart_attempt,
)
from trainmaster.controller.explain.findings import Event, ObjectReference, parse_time, reference_to
from trainmaster.controller.explain.pods import condition_of, known_pods, places, wanted_pods
from trainmaster.controller.explain.state import words_of_end
from trainmaster.controller.explain.view import JobView, role_of
from trainmaster.controller.job_fields import ENDS, conditions_of
from trainmaster.runtime.api.constants import DEADLINE_EXCEEDED_REASON, FAILED
from trainmaster.runtime.jobs.constants import RESTARTING, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

MOST: Final = 40
"""Moments."""

_MOST_FAILURES: Final = 10
_MOST_WARNINGS: Final = 10
_LONGEST_NOTE: Final = 300

_TOLD_OTHERWISE: Final = frozenset(
    {"BackOff", "BackoffLimitExceeded", DEADLINE_EXCEEDED_REASON, "FailedJobs", "ReachedMaxRestarts"}
)
"""Reasons of events that repeat what containers and conditions tell."""

_NOTABLE: Final = frozenset({"Killing", "Preempted", "Preempting", "TaintManagerEviction", "Evicted", "RestartJobSet"})
"""Reasons of events that are no warnings."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a job."""

    at: datetime
    text: str
    """A few words."""

    object: ObjectReference | None = None
    """What it happened to, if not to the job itself."""

    until: datetime | None = None
    """When it happened last, if it happened more than once."""

    attempt: float = 0
    """In which attempt it happened; what is of none comes after all."""


def timeline(view: JobView) -> Sequence[Moment]:
    """Return what happened to a job."""
    # Of what has the same second, and the same attempt, what follows from others comes later.
    moments = [*_objects(view), *_pods(view), *_failures(view), *_warnings(view), *_conditions(view), *_untold(view)]
    moments.sort(key=lambda moment: (moment.at, moment.attempt))
    if len(moments) <= MOST:
        return moments
    half = MOST // 2
    left_out = len(moments) - 2 * half + 1
    between = Moment(moments[half].at, f"({left_out} more are left out here)")
    return [*moments[: half - 1], between, *moments[-half:]]


def _objects(view: JobView) -> Iterator[Moment]:
    if not view.is_deleted:
        yield from _made(view.object, f"{view.kind} is created")
    for snapshot in view.snapshots or ():
        yield from _made(snapshot, "its runtime is frozen in a snapshot")
    for jobset in view.jobsets or ():
        yield from _made(jobset, "its JobSet is created")
    yield from _created_together(view.jobs or (), "Job")
    if deleted := parse_time(view.metadata.get("deletionTimestamp")):
        yield Moment(deleted, f"the {view.kind} is deleted", attempt=inf)


def _made(obj: JsonObject, text: str) -> Iterator[Moment]:
    if created := parse_time(obj["metadata"].get("creationTimestamp")):
        yield Moment(created, text, reference_to(obj))


def _created_together(objects: Iterable[JsonObject], noun: str) -> Iterator[Moment]:
    for attempt, of_attempt in _by_attempt(objects):
        times = sorted(filter(None, (parse_time(each["metadata"].get("creationTimestamp")) for each in of_attempt)))
        if times:
            again = f" of attempt {attempt}" if attempt else ""
            yield _span(times, f"{_counted(len(of_attempt), noun, again)} created", attempt)


def _span(times: Sequence[datetime], text: str, attempt: float) -> Moment:
    return Moment(times[0], text, until=times[-1] if times[-1] != times[0] else None, attempt=attempt)


def _counted(number: int, noun: str, which: str = "") -> str:
    return f"{number} {noun}{which} is" if number == 1 else f"{number} {noun}s{which} are"


def _by_attempt(objects: Iterable[JsonObject]) -> list[tuple[int, list[JsonObject]]]:
    attempts: dict[int, list[JsonObject]] = {}
    for each in objects:
        attempts.setdefault(restart_attempt(each), []).append(each)
    return sorted(attempts.items())


def _conditions(view: JobView) -> Iterator[Moment]:
    for condition in conditions_of(view.object):
        at, kind, holds = (
            parse_time(condition.get("lastTransitionTime")),
            condition.get("type"),
            condition.get("status"),
        )
        if at is None:
            continue
        if kind == SUSPENDED:
            yield Moment(at, "it is suspended" if holds == "True" else "it is resumed", attempt=inf)
        elif kind in ENDS and holds == "True":
            told = _shortened("; ".join(filter(None, words_of_end(view, condition))))
            how = "has failed" if kind == FAILED else "is complete"
            yield Moment(at, f"it {how}{f': {told}' if told else ''}", attempt=inf)
        elif kind == RESTARTING and holds == "True":
            yield Moment(at, _shortened(str(condition.get("message") or "it is restarted")), attempt=inf)


def _pods(view: JobView) -> Iterator[Moment]:
    for attempt, pods in _by_attempt(known_pods(view)):
        again = f" of attempt {attempt}" if attempt else ""
        for what, times in (
            ("created", [parse_time(pod["metadata"].get("creationTimestamp")) for pod in pods]),
            ("given a node", [_scheduled_at(pod) for pod in pods]),
            ("started", [_first_start(pod) for pod in pods if not _hides_starts(pod)]),
            ("started again", [_first_start(pod) for pod in pods if _hides_starts(pod)]),
        ):
            known = sorted(each for each in times if each is not None)
            if known:
                part = f"{len(known)} of " if len(known) < len(pods) else ""
                yield _span(known, f"{part}{_counted(len(pods), 'pod', again)} {what}", attempt)


def _untold(view: JobView) -> Iterator[Moment]:
    """Tell of how many pods of the last attempt nothing is known: of what is gone only an embedded cluster tells."""
    if view.pods is None or view.has_more_pods or not view.has_ended:
        return
    attempts = _by_attempt(each[-1] for each in places(known_pods(view)))
    untold = sum((wanted_pods(view) or {}).values()) - (len(attempts[-1][1]) if attempts else 0)
    if untold > 0:
        pods = "1 pod" if untold == 1 else f"{untold} pods"
        yield Moment(view.now, f"of {pods} nothing is known any more: deleted by now, or never created", attempt=inf)


def _scheduled_at(pod: JsonObject) -> datetime | None:
    scheduled = condition_of(pod, "PodScheduled")
    return parse_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None


def _hides_starts(pod: JsonObject) -> bool:
    """Tell whether containers of a pod were started more often than it tells of."""
    return any(last_run(status) > 0 for status in (pod.get("status") or {}).get("containerStatuses") or ())


def _first_start(pod: JsonObject) -> datetime | None:
    """Return when the containers of a pod began to run for the first time, as far as it tells."""
    times = [
        parse_time(each.get("startedAt"))
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        for run in ("lastState", "state")
        for each in ((status.get(run) or {}).get(how) or {} for how in ("running", "terminated"))
    ]
    return min((each for each in times if each is not None), default=None)


def _failures(view: JobView) -> Iterator[Moment]:
    found = [(failure, pod) for pod in known_pods(view) for failure in container_failures(pod) if not failure.stopped]
    found.sort(key=lambda pair: pair[0].order)
    for failure, pod in found[:_MOST_FAILURES]:
        if at := parse_time(failure.at):
            text = f"{role_of(pod)}: {_ended(failure)}"
            yield Moment(at, text, reference_to({"kind": "Pod", **pod}), attempt=failure.attempt)
    rest = sorted(filter(None, (parse_time(failure.at) for failure, _ in found[_MOST_FAILURES:])))
    if rest:
        yield _span(rest, f"{len(rest)} more containers fail", found[-1][0].attempt)


def _ended(failure: ContainerFailure) -> str:
    reason = f" ({failure.reason})" if failure.reason == OOM_KILLED else ""
    restart = f", restart {failure.run}" if failure.run else ""
    return f"container {failure.container} ends with exit code {failure.exit_code}{reason}{restart}"


def _warnings(view: JobView) -> Iterator[Moment]:
    """Return what controllers and nodes said, of many that say the same of one kind one."""
    groups: dict[tuple[str, str], list[Event]] = {}
    for event in view.events or ():
        # Of a job that is gone nothing else tells.
        notable = event.is_warning or event.reason in _NOTABLE
        if event.first is None or not (view.is_deleted or (notable and not _is_told_otherwise(event, view))):
            continue
        groups.setdefault((event.about.kind, event.reason), []).append(event)
    kept = sorted(groups.values(), key=lambda events: max(filter(None, (each.last for each in events))))
    for events in kept[-_MOST_WARNINGS:]:
        first, last = events[0], max(filter(None, (each.last for each in events)))
        count = sum(each.count for each in events)
        times = f" ({count} times)" if count > 1 else ""
        at = min(filter(None, (each.first for each in events)))
        text = f"{first.reason}{times}: {_shortened(first.note)}" if first.note else f"{first.reason}{times}"
        yield Moment(at, text, first.about, until=last if last > at else None, attempt=inf)


def _is_told_otherwise(event: Event, view: JobView) -> bool:
    """Tell whether an event repeats what conditions tell, or pods that are still there."""
    if event.reason == CONTAINER_FAILED:
        return any(f"pod {pod['metadata']['name']}," in event.note for pod in known_pods(view))
    return event.reason in _TOLD_OTHERWISE


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_NOTE else f"{line[: _LONGEST_NOTE - 4]} ..."
