"""In which state a job is, in one word, from its conditions and its pods, since when, and a few words more. Pure.

The word that people read is the type of the condition that counts, as the column State of `kubectl get` has it. Only
where no condition says anything the pods decide. Commands, the web page and the history have it from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from trainmaster.controller.conditions import BLOCKED, CONTAINER_FAILED, PLUGIN_SKIPPED, WAITING
from trainmaster.controller.explain.cause import Question
from trainmaster.controller.explain.condition_causes import REACHED_MAX_RESTARTS
from trainmaster.controller.explain.findings import parse_time
from trainmaster.controller.explain.pods import (
    current_pods,
    has_failed,
    has_succeeded,
    is_running,
    started_at,
    wanted_pods,
)
from trainmaster.controller.explain.view import JobView, condition_since
from trainmaster.controller.job_fields import ENDS, PRECEDENCE, conditions_of, number
from trainmaster.runtime.api.constants import COMPLETE, FAILED, SUSPENDED, TRAINJOB_KIND
from trainmaster.runtime.jobs.constants import CREATED, RESTARTING, RUNNING, SUCCEEDED
from trainmaster.runtime.jsontree import JsonObject

PATIENCE: Final = timedelta(seconds=30)
"""How long a job may take to start, and a controller to do something, before one asks why it does not."""


class State(StrEnum):
    """States of jobs of all kinds."""

    DELETED = "Deleted"
    COMPLETE = "Complete"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    """It is being deleted."""

    SUSPENDED = "Suspended"
    WAITING = "Waiting"
    """It has been created; not all of its pods have run yet."""

    RESTARTING = "Restarting"
    """It has run, and not all of its pods run now."""

    RUNNING = "Running"

    @property
    def question(self) -> Question | None:
        """What one asks of a job in this state; None if there is nothing to ask."""
        return _QUESTIONS.get(self)


_QUESTIONS = {
    State.FAILED: Question.FAILED,
    State.TERMINATING: Question.FINISH,
    State.SUSPENDED: Question.START,
    State.WAITING: Question.START,
    State.RESTARTING: Question.FINISH,
    State.RUNNING: Question.FINISH,
}


@dataclass(frozen=True, slots=True)
class JobState:
    """A state."""

    state: State
    """By which one asks why."""

    since: datetime | None
    """Since when it is in it; None if nobody knows."""

    detail: str = ""
    """A few words more, for instance how many of its pods run."""

    word: str = ""
    """What people read: one of `WORDS`."""


WORDS: Final = (
    State.RUNNING.value, WAITING, CREATED, BLOCKED, CONTAINER_FAILED, RESTARTING, PLUGIN_SKIPPED, SUSPENDED,
    State.TERMINATING.value, COMPLETE, SUCCEEDED, FAILED, State.DELETED.value,
)  # fmt: skip
"""All words for states of jobs of both APIs."""


def state_of(view: JobView) -> JobState:
    """Return the state of a job."""
    found = _state_of(view)
    told = next((each for each in PRECEDENCE if each in view.conditions), None)
    if found.state is State.DELETED:
        word = word_of_end(view.kind, view.result) or State.DELETED.value
        return replace(found, detail="it is deleted" if word in ENDS else "", word=word)
    if told is None or found.state is State.TERMINATING:
        return replace(found, word=found.state.value)
    return replace(found, word=told)


def word_of_end(kind: str, result: str) -> str:
    """Return the word for the state of a job that is over, by its kind and the result that the history has."""
    return COMPLETE if (kind, result) == (TRAINJOB_KIND, SUCCEEDED) else result


def _state_of(view: JobView) -> JobState:
    if view.is_deleted:
        return JobState(State.DELETED, None)
    conditions = view.conditions
    if view.outcome is not None:
        end = conditions[view.outcome]
        state = State.FAILED if view.outcome == FAILED else State.COMPLETE
        return JobState(state, condition_since(end), words_of_end(view, end)[0])
    if view.is_terminating:
        return JobState(State.TERMINATING, parse_time(view.metadata["deletionTimestamp"]))
    if is_suspended(view):
        return JobState(State.SUSPENDED, condition_since(conditions.get(SUSPENDED) or {}))
    return _active(view)


def is_suspended(view: JobView) -> bool:
    """Tell whether somebody wants the job, or its JobSet, not to run."""
    jobsets = view.jobsets or ()
    return view.is_suspended or any((each.get("spec") or {}).get("suspend") for each in jobsets)


def words_of_end(view: JobView, end: JsonObject) -> tuple[str, str]:
    """Return what the condition with which a job ended says of that, and of the container that failed first.

    A limit of restarts is no cause where there was none: JobSet names it also where it allows no restart.
    """
    said, mark, failure = str(end.get("message") or end.get("reason") or "").partition("; attempt ")
    jobset = next(iter(view.jobsets or ()), {})
    if end.get("reason") == REACHED_MAX_RESTARTS and not view.restarts(jobset, view.pods or ()):
        said = ""
    return next(iter(said.splitlines()), ""), f"{mark.removeprefix('; ')}{failure}"


def _active(view: JobView) -> JobState:
    if view.pods is None:
        return _by_conditions(view)
    pods = current_pods(view)
    good = [pod for pod in pods if is_running(pod) or has_succeeded(pod)]
    wanted = wanted_pods(view)
    total = max(len(pods), sum(wanted.values())) if wanted is not None else len(pods)
    detail = f"{len(good)} of {total} pods run" if total else "it has no pods yet"
    if view.has_more_pods and len(good) == len(pods):
        return replace(_by_conditions(view), detail=f"{len(pods)} pods run, and there are more")
    if pods and len(good) == total:
        detail = f"{total} pod{'s' if total > 1 else ''}{_progress(view)}"
        return JobState(State.RUNNING, max(filter(None, map(started_at, good)), default=None), detail)
    if has_run(view, pods):
        return JobState(State.RESTARTING, _last_failure(view), detail)
    return JobState(State.WAITING, _waits_since(view), detail)


def _progress(view: JobView) -> str:
    """Say how far the training is by its own report, and how old that is."""
    reported = view.progress
    if reported is None or reported.percentage is None or (at := parse_time(reported.time)) is None:
        return ""
    minutes = int((view.now - at).total_seconds() // 60)
    age = f"{minutes} minute{'s' if minutes != 1 else ''} ago" if minutes > 0 else "just now"
    return f", {reported.percentage} % done as it reported {age}"


def _by_conditions(view: JobView) -> JobState:
    """Return the state of a job whose pods nobody could look at."""
    for condition_type, state in ((RESTARTING, State.RESTARTING), (RUNNING, State.RUNNING)):
        if condition_type in view.conditions:
            return JobState(state, condition_since(view.conditions[condition_type]))
    ready = [number(each.get("ready")) + number(each.get("succeeded")) > 0 for each in view.parts]
    runs = bool(ready) and all(ready)
    return JobState(State.RUNNING if runs else State.WAITING, None if runs else _waits_since(view))


def has_run(view: JobView, pods: Sequence[JsonObject]) -> bool:
    """Tell whether the job has been started before, at least in part, and what ran is over."""
    restarts = any((each.get("status") or {}).get("restarts") for each in view.jobsets or ())
    return bool(restarts) or RESTARTING in view.conditions or any(map(has_failed, view.pods or pods))


def _last_failure(view: JobView) -> datetime | None:
    """Return when the last container ended that failed; or since when a condition tells of it."""
    ended = [
        parse_time(((status.get(name) or {}).get("terminated") or {}).get("finishedAt"))
        for pod in view.pods or ()
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        for name in ("state", "lastState")
    ]
    return max((each for each in ended if each is not None), default=None)


def _waits_since(view: JobView) -> datetime | None:
    """Return since when a job waits: its creation, or the end of its last suspension."""
    for condition in conditions_of(view.object):
        if condition["type"] == SUSPENDED and condition["status"] == "False":
            return condition_since(condition) or view.created
    return view.created
