"""What the manager tells of containers that failed: the cause of a failure, and findings where pods or job are gone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.conditions import CONTAINER_FAILED, WAITING
from trainmaster.controller.container_failures import (
    OOM_KILLED,
    STATUS_UNKNOWN,
    ContainerFailure,
    container_failures,
    meaning_of,
)
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.advice import READ_ITS_LOG, advice_for, run_again
from trainmaster.controller.explain.causes.failures.last_said import READ_FROM_WORDS, said_cause
from trainmaster.controller.explain.causes.pods.disruptions import (
    DISRUPTION_REASONS,
    disruption_advice,
    said_disruption,
)
from trainmaster.controller.explain.conditions import cause_of
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, ObjectReference, parse_time
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.view import JobView, condition_since
from trainmaster.runtime.api.constants import ANCESTORS, FAILED, TRAINER_ANCESTOR

_FAILURE: Final = re.compile(
    r"(?P<who>[^;:\n]+) \(pod (?P<pod>\S+), container (?P<container>\S+)\) failed(?: at (?P<at>\S+))? "
    r"with exit code (?P<code>\d+)(?: \((?P<why>[^)]*)\))?(?:[:;] (?P<words>[^\n]*))?"
)
"""As the manager words the first failure of an attempt."""

_EXITED: Final = "ExitedWithCode"
_EXIT: Final = re.compile(r"Pod: [^.\s]+\.(?P<pod>\S+) exited with code (?P<code>\d+)")
"""The reason of the event by which controllers of jobs of `kubeflow.org/v1` tell how a pod ended, and its words."""

_REPLICAS_FAILED: Final = re.compile(r"replica\(s\) failed")
_STOPPED: Final = frozenset({137, 143})

_INITIALIZERS: Final = frozenset(ANCESTORS) - {TRAINER_ANCESTOR}
_WORD: Final = re.compile(r"\w+")


def cause_of_failure(failure: ContainerFailure) -> Cause:
    """Return why a container failed, as far as it and its pod tell."""
    who = failure.replicated_job if failure.replicated_job in _INITIALIZERS else failure.container
    return _cause(failure.reason, who, failure.message)


def told_by_manager(view: JobView) -> Iterator[Finding]:
    """The failure that conditions of the job tell of, or events, where no pod tells of any."""
    if any(container_failures(pod) for pod in view.pods or ()):
        return
    yield from _told_of_trainjob(view) if view.is_trainjob else _told_of_v1_job(view)


def _told_of_trainjob(view: JobView) -> Iterator[Finding]:
    for text, at in _texts(view):
        told = list(_FAILURE.finditer(text))
        if told:
            last = told[-1]
            since = parse_time(last["at"]) or at
            evidence = Evidence(view.reference, last[0].strip(), since)
            words = last["words"] or ""
            container = last["container"]
            cause = said_disruption(view, words) or _cause(last["why"] or "", container, words)
            if cause is Cause.CONTAINER_FAILED and container in _init_containers(view):
                cause = Cause.INIT_CONTAINER_FAILED
            certainty = Certainty.LIKELY if cause in READ_FROM_WORDS else Certainty.CERTAIN
            yield Finding(cause, certainty, (evidence,), since, _advice(view, cause, last))
            return


def _told_of_v1_job(view: JobView) -> Iterator[Finding]:
    """The exit codes that its controller tells of, or at least that replicas have failed."""
    exits = [
        (event, found)
        for event in view.events_about(view.kind, view.name)
        if event.reason == _EXITED and (found := _EXIT.search(event.note)) and found["code"] != "0"
    ]
    # Who is stopped because of another one ends with a code as well.
    own = [each for each in exits if int(each[1]["code"]) not in _STOPPED]
    failed = view.conditions.get(FAILED)
    if exits:
        event, found = (own or exits)[-1]
        meaning = meaning_of(int(found["code"]))
        text = f"exited with code {found['code']}{f' ({meaning})' if meaning else ''}, and is gone"
        evidence = Evidence(ObjectReference("Pod", view.namespace, found["pod"]), text, event.last)
        certainty = Certainty.CERTAIN if own else Certainty.POSSIBLE
        yield Finding(Cause.CONTAINER_FAILED, certainty, (evidence,), event.last, run_again(view))
    elif failed is not None and _REPLICAS_FAILED.search(str(failed.get("message"))):
        since = condition_since(failed)
        evidence = Evidence(view.reference, str(failed["message"]), since)
        yield Finding(Cause.CONTAINER_FAILED, Certainty.LIKELY, (evidence,), since, run_again(view))


def _advice(view: JobView, cause: Cause, told: re.Match[str]) -> Sequence[str]:
    """Return what to do about a container whose pod is gone, and its log with that."""
    words = told["words"] or ""
    if disrupted := disruption_advice(view, cause, words):
        return disrupted
    failure = ContainerFailure(
        pod=told["pod"],
        pod_uid="",
        container=told["container"],
        rank=None,
        attempt=0,
        run=0,
        exit_code=int(told["code"]),
        reason=told["why"] or "",
        message=words,
        at=told["at"] or "",
    )
    if cause is Cause.OUT_OF_MEMORY:
        return ()
    advice = advice_for(view, cause, failure, limit="", lines=words.splitlines())
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


def _cause(reason: str, container: str, words: str) -> Cause:
    if OOM_KILLED in reason:
        return Cause.OUT_OF_MEMORY
    if STATUS_UNKNOWN in reason:
        return Cause.NODE_LOST
    if (first := _WORD.match(words)) and first[0] in DISRUPTION_REASONS:
        return DISRUPTION_REASONS[first[0]]  # the reason of a pod that was taken away comes first
    if container in _INITIALIZERS:
        return Cause.INIT_CONTAINER_FAILED
    said = said_cause(words.splitlines())
    return said[0] if said else Cause.CONTAINER_FAILED


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
    named = tuple(line.replace("JOB", f"{view.name} -n {view.namespace}") for line in cause.advice)
    yield Finding(cause, Certainty.LIKELY, (evidence,), since, named)
