"""`explain`: the causes of what a view shows, the likeliest first, with the state and the timeline of the job.

Guarantees:
- It is pure, and raises nothing for what the API server, an older version or another controller may have put into
  objects.
- From what could not be looked at nothing is concluded; it is listed.
- A job that starts or runs as it should has no findings. One that does not has at least one: `Unknown` if no other.
- What a job has overcome is no cause of its state; it is told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from trainmaster.controller.explain.cause import Cause, Question
from trainmaster.controller.explain.causes.pods.disruptions import DISRUPTIONS
from trainmaster.controller.explain.causes.table import FINDERS
from trainmaster.controller.explain.findings import (
    Certainty,
    Evidence,
    Finding,
    ObjectReference,
    parse_time,
    reference_to,
)
from trainmaster.controller.explain.pods import (
    FailedContainer,
    current_pods,
    has_succeeded,
    is_running,
    last_attempt_began,
    last_failures,
    what_it_waits_for,
)
from trainmaster.controller.explain.ranking import explains, ranked
from trainmaster.controller.explain.state import PATIENCE, JobState, State, state_of
from trainmaster.controller.explain.timeline import Moment, timeline
from trainmaster.controller.explain.view import JobView, Unread, WhyUnread, kubectl, named_advice, role_of
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL

_SLACK: Final = timedelta(seconds=2)
_MOST_PODS: Final = 5
_HELD: Final = "is deleted, and held by finalizers:"

_LIMITS: Final = frozenset({Cause.BACKOFF_LIMIT_EXCEEDED, Cause.DEADLINE_EXCEEDED})
"""Causes that tell when a job was given up, and not why it did not get on."""

_KEEPS_SUSPENDED: Final = frozenset(
    {
        Cause.SUSPENDED,
        Cause.QUOTA_EXCEEDED,
        Cause.RUNTIME_MISSING,
        Cause.REFUSED,
        Cause.PLUGIN_FAILED,
        Cause.MANAGER_ABSENT,
        Cause.ANOTHER_MANAGER_LEADS,
        Cause.JOBSET_CONTROLLER_ABSENT,
    }
)
"""What concerns a job that is suspended."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say of a job."""

    job: ObjectReference
    state: JobState
    findings: Sequence[Finding]
    """Why it is in this state, ranked: the first is the most likely cause. Empty if all is as it should be."""

    overcome: Sequence[Finding]
    """What there was, and is over, ranked."""

    failed_container: FailedContainer | None
    """What failed first, in the last attempt of the job that failed."""

    timeline: Sequence[Moment]
    """The oldest first."""

    unread: Sequence[Unread]
    restarts: int = 0
    """How often the training was started again."""


def explain(view: JobView) -> Explanation:
    """Explain the state of a job."""
    state = state_of(view)
    found = _without_limit(ranked(finding for find in FINDERS for finding in find(view)))
    found = [each if each.advice else replace(each, advice=named_advice(view, each.cause.advice)) for each in found]
    current = list(_current(view, found, state))
    overcome = [each for each in found if each not in current]
    if not current and _needs_an_answer(view, state):
        current = [_unknown(view)]
    return Explanation(
        job=view.reference,
        state=state,
        findings=current,
        overcome=overcome,
        failed_container=next(iter(last_failures(view)), None),
        timeline=timeline(view),
        unread=view.unread,
        restarts=view.restarts(next(iter(view.jobsets or ()), {}), view.pods or ()),
    )


def _without_limit(found: Sequence[Finding]) -> Sequence[Finding]:
    """Return the findings without the limit of restarts, if why it failed to the last is known."""
    is_known = any(Question.FAILED in each.cause.questions and each.cause not in _LIMITS for each in found)
    return [each for each in found if not (is_known and each.cause is Cause.BACKOFF_LIMIT_EXCEEDED)]


def _current(view: JobView, found: Iterable[Finding], state: JobState) -> Iterator[Finding]:
    """Return the findings that are reasons of a state."""
    if state.state is State.COMPLETE:
        return
    if state.state is State.DELETED:
        yield from found
        return
    if state.state is State.SUSPENDED:
        yield from (each for each in found if each.cause in _KEEPS_SUSPENDED)
        return
    if state.state is State.RUNNING and state.since is not None:
        since = state.since - _SLACK
        found = [each for each in found if each.since is None or each.since >= since]
    question = state.state.question
    listed = list(found)
    if state.state is State.FAILED:
        listed = _without_earlier_attempts(view, listed)
    answers = [each for each in listed if question in each.cause.questions]
    yield from (each for each in listed if each in answers or any(explains(each, other) for other in answers))


def _without_earlier_attempts(view: JobView, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings without disruptions of earlier attempts, if what the last one failed of is known."""
    began = last_attempt_began(view)
    if began is None:
        return list(found)
    of_earlier = [
        each for each in found if each.cause in DISRUPTIONS and each.since is not None and each.since <= began
    ]
    left = [each for each in found if each not in of_earlier]
    is_known = any(Question.FAILED in each.cause.questions and each.cause not in _LIMITS for each in left)
    return left if is_known else list(found)


def _needs_an_answer(view: JobView, state: JobState) -> bool:
    """Tell whether a job without findings is not as it should be."""
    if state.state is State.FAILED:
        return True
    if state.state not in (State.WAITING, State.RESTARTING, State.TERMINATING):
        return False
    return state.since is not None and view.now - state.since >= PATIENCE


def _unknown(view: JobView) -> Finding:
    """Return that nobody knows why, with what there is to see."""
    evidence = list(_finalizers(view))
    evidence += [
        Evidence(reference_to({"kind": "Pod", **pod}), f"{role_of(pod)}: {what_it_waits_for(pod)}")
        for pod in current_pods(view)
        if not is_running(pod) and not has_succeeded(pod)
    ][:_MOST_PODS]
    evidence += [
        Evidence(event.about, f"{event.reason}: {event.note}", event.last)
        for event in list(view.events or ())[-_MOST_PODS:]
        if event.reason
    ]
    if not evidence:
        lacks = "has no pods" if view.pods is not None else "has pods that nobody could look at"
        evidence.append(Evidence(view.reference, lacks))
    advice = []
    if evidence[0].text.startswith(_HELD):
        advice.append("who set a finalizer has to remove it when its work is done: see whether that controller runs")
    if view.pods:
        selector = f"{JOBSET_LABEL if view.is_trainjob else JOB_NAME_LABEL}={view.name}"
        advice.append(f"see its pods: {kubectl(view, 'describe', 'pods', '-l', selector)}")
    advice.append(f"see the events: {kubectl(view, 'events')}")
    if any(each.why is WhyUnread.FORBIDDEN for each in view.unread):
        advice.append("let somebody look who may see what could not be looked at")
    return Finding(Cause.UNKNOWN, Certainty.POSSIBLE, tuple(evidence), view.created, tuple(advice))


def _finalizers(view: JobView) -> Iterator[Evidence]:
    """Tell what keeps a job that is deleted from being gone."""
    metadata = view.metadata
    finalizers = metadata.get("finalizers")
    if metadata.get("deletionTimestamp") and finalizers:
        text = f"{_HELD} {', '.join(map(str, finalizers))}"
        yield Evidence(view.reference, text, parse_time(metadata["deletionTimestamp"]))
