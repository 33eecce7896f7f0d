"""What the manager tells of containers that failed, where pods or job are gone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.conditions import CONTAINER_FAILED, WAITING
from trainmaster.controller.container_failures import (
    ENDED_BY_OTHERS,
    OOM_KILLED,
    ContainerFailure,
    container_failures,
    meaning_of,
)
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.advice import READ_ITS_LOG, advice_for, run_again
from trainmaster.controller.explain.causes.failures.containers import cause_of_failure
from trainmaster.controller.explain.causes.failures.last_said import READ_FROM_WORDS
from trainmaster.controller.explain.causes.pods.disruptions import disruption_advice, said_disruption
from trainmaster.controller.explain.condition_causes import cause_of
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, ObjectReference, parse_time
from trainmaster.controller.explain.pods import last_failures
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.view import JobView, condition_since
from trainmaster.runtime.api.constants import ANCESTORS, FAILED, TRAINER_ANCESTOR

_FAILURE: Final = re.compile(
    r"(?:[^;:\n]+ ended first, with exit code 0; )?"
    r"(?P<who>[^;:\n]+) \(pod (?P<pod>\S+), container (?P<container>\S+)\) failed(?: at (?P<at>\S+))? "
    r"with exit code (?P<code>\d+)(?: \((?P<why>[^)]*)\))?(?:[:;] (?P<words>[^\n]*))?"
)
"""As the manager words the first failure of an attempt."""

_EXITED: Final = "ExitedWithCode"
_EXIT: Final = re.compile(r"Pod: [^.\s]+\.(?P<pod>\S+) exited with code (?P<code>\d+)")
"""The reason of the event by which controllers of jobs of `kubeflow.org/v1` tell how a pod ended, and its words."""

_REPLICAS_FAILED: Final = re.compile(r"replica\(s\) failed")

_INITIALIZERS: Final = frozenset(ANCESTORS) - {TRAINER_ANCESTOR}


def told_by_manager(view: JobView) -> Iterator[Finding]:
    """The failure that conditions of the job tell of, or events, where no pod tells of any."""
    if last_failures(view) or any(container_failures(pod) for pod in view.pods or ()):
        return
    yield from _told_of_trainjob(view) if view.is_trainjob else _told_of_v1_job(view)


def _told_of_trainjob(view: JobView) -> Iterator[Finding]:
    for text, at in _texts(view):
        told = list(_FAILURE.finditer(text))
        if told:
            last = told[-1]
            since = parse_time(last["at"]) or at
            evidence = Evidence(view.reference, last[0].strip(), since)
            failure = _failure(view, last)
            cause = said_disruption(view, failure.message) or cause_of_failure(failure)
            is_read = cause in READ_FROM_WORDS and OOM_KILLED not in failure.reason
            certainty = Certainty.LIKELY if is_read else Certainty.CERTAIN
            yield Finding(cause, certainty, (evidence,), since, _advice(view, cause, failure))
            return


def _failure(view: JobView, told: re.Match[str]) -> ContainerFailure:
    """Read a failure as the manager words it (see `diagnosis.first_failures`)."""
    return ContainerFailure(
        pod=told["pod"],
        pod_uid="",
        container=told["container"],
        rank=None,
        attempt=0,
        run=0,
        exit_code=int(told["code"]),
        reason=told["why"] or "",
        message=told["words"] or "",
        at=told["at"] or "",
        is_initial=told["container"] in _INITIALIZERS or told["container"] in _init_containers(view),
    )


def _told_of_v1_job(view: JobView) -> Iterator[Finding]:
    """The exit codes that its controller tells of, or at least that replicas have failed."""
    exits = [
        (event, found)
        for event in view.events_about(view.kind, view.name)
        if event.reason == _EXITED and (found := _EXIT.search(event.note)) and found["code"] != "0"
    ]
    # Who is stopped because of another one ends with a code as well.
    own = [each for each in exits if int(each[1]["code"]) not in ENDED_BY_OTHERS]
    failed = view.conditions.get(FAILED)
    if exits:
        event, found = (own or exits)[-1]
        meaning = meaning_of(int(found["code"]))
        text = f"exited with code {found['code']}{f' ({meaning})' if meaning else ''}, and is gone"
        evidence = Evidence(ObjectReference("Pod", view.namespace, found["pod"]), text, event.last)
        certainty = Certainty.CERTAIN if own else Certainty.POSSIBLE
        yield Finding(Cause.CONTAINER_FAILED, certainty, (evidence,), event.last, run_again(view))
    elif view.pods is not None and failed is not None and _REPLICAS_FAILED.search(str(failed.get("message"))):
        since = condition_since(failed)
        evidence = Evidence(view.reference, str(failed["message"]), since)
        yield Finding(Cause.CONTAINER_FAILED, Certainty.LIKELY, (evidence,), since, run_again(view))


def _advice(view: JobView, cause: Cause, failure: ContainerFailure) -> Sequence[str]:
    """Return what to do about a container whose pod is gone, and its log with that."""
    if disrupted := disruption_advice(view, cause, failure.message):
        return disrupted
    if cause is Cause.OUT_OF_MEMORY:
        return ()
    advice = advice_for(view, cause, failure, lines=failure.message.splitlines())
    return [line for line in advice if not line.startswith(READ_ITS_LOG)] or run_again(view)


def _init_containers(view: JobView) -> set[str]:
    """Return the names of the init containers of the job, as far as its JobSet tells."""
    replicated_jobs = [
        each for jobset in view.jobsets or () for each in (jobset.get("spec") or {}).get("replicatedJobs") or ()
    ]
    pods = [
        (((each.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        for each in replicated_jobs
    ]
    return {str(container.get("name")) for pod in pods for container in pod.get("initContainers") or ()}


def _texts(view: JobView) -> Iterator[tuple[str, datetime | None]]:
    """Return where the manager may have told of failures, what tells of the last one first."""
    for name in (CONTAINER_FAILED, FAILED):
        condition = view.conditions.get(name) or {}
        yield str(condition.get("message") or ""), condition_since(condition)
    # Of a job that goes on, events tell what it has overcome; of another one they would tell what was before.
    if view.is_deleted or state_of(view).state is State.RUNNING:
        for event in reversed(list(view.events_about(view.kind, view.name))):
            if event.reason == CONTAINER_FAILED:
                yield event.note, event.last


def told_to_wait(view: JobView) -> Iterator[Finding]:
    """The cause that the condition Waiting tells of, where nobody looked at the pods."""
    condition = view.conditions.get(WAITING)
    if view.pods is not None or condition is None:
        return
    cause = cause_of({WAITING: condition})
    if cause is None or cause is Cause.UNKNOWN:
        return
    since = condition_since(condition)
    evidence = Evidence(view.reference, str(condition.get("message") or condition["reason"]), since)
    yield Finding(cause, Certainty.LIKELY, (evidence,), since)
