"""Containers that failed, each with one cause: by its reason, its exit code, and the last that it said.

OutOfMemory, InitContainerFailed, ContainerFailed, and those that only last words tell (see `last_said`). What a
container fails of because another one had gone before is the weakest finding. Of pods that are gone, `told` knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from trainmaster.controller.container_failures import (
    OOM_KILLED,
    REPLICATED_JOB_LABEL,
    STATUS_UNKNOWN,
    TAKEN_AWAY,
    ContainerFailure,
    container_statuses,
    meaning_of,
    restart_attempt,
)
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.advice import advice_for
from trainmaster.controller.explain.causes.failures.last_said import READ_FROM_WORDS, said_cause
from trainmaster.controller.explain.causes.pods.disruptions import DISRUPTION_REASONS
from trainmaster.controller.explain.causes.pods.evidence import labels_of, one_line, who
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
    condition_of,
    has_succeeded,
    known_pods,
    last_failures,
    place_of,
)
from trainmaster.controller.explain.view import JobView, role_of
from trainmaster.controller.last_words import failed_rank, last_words, lost_by_mpirun
from trainmaster.runtime.jsontree import JsonObject

_KILLED: Final = 137
_REASON: Final = re.compile(r"\w+(?=: )")
"""With what the message begins of a container whose pod was taken away."""

_PROBE: Final = re.compile(r"failed (liveness|startup) probe")
_PROBE_ADVICE: Final = "give the probe more time, or leave it out: a rank that is busy with a step answers late"
_STOPPED_AT_BARRIER: Final = re.compile(r"agent/server/api\.py:\d+\] Got termination signal")
"""What torchrun says only where all of its processes have succeeded, and it waits for those of other nodes."""

_UNTOLD: Final = frozenset({"", "Error"})
_MOST: Final = 200
"""Failures whose words are read, the first ones: what came after them tells nothing new."""


def failed_containers(view: JobView) -> Iterator[Finding]:
    """Find why containers failed last, by cause."""
    failed = [each for each in last_failures(view) if _is_its_own(each)]
    by_cause: dict[Cause, list[FailedContainer]] = {}
    for each in failed[:_MOST]:
        by_cause.setdefault(cause_of_failure(each.failure, each.lines), []).append(each)
    for cause, of_cause in by_cause.items():
        is_first = of_cause[0] is failed[0]
        found = _finding(view, cause, of_cause, is_first=is_first)
        if is_first and len(failed) > _MOST:
            more = Evidence(view.reference, f"{len(failed) - _MOST} more containers failed, later than {_MOST} others")
            found = replace(found, evidence=[*found.evidence, more])
        yield found


def _is_its_own(failed: FailedContainer) -> bool:
    """Tell whether a container failed, not its pod or its node."""
    reason = (failed.pod.get("status") or {}).get("reason")
    is_taken_away = condition_of(failed.pod, "DisruptionTarget").get("status") == "True" or reason in TAKEN_AWAY
    return not is_taken_away and failed.failure.reason != STATUS_UNKNOWN


def cause_of_failure(failure: ContainerFailure, lines: Sequence[str] = ()) -> Cause:
    """Return why a container failed, as far as it, its pod and its last words tell.

    Args:
        failure: How it failed.
        lines: The last lines of its log, where those are known; else its message has to do.
    """
    if OOM_KILLED in failure.reason:
        return Cause.OUT_OF_MEMORY
    if STATUS_UNKNOWN in failure.reason:
        return Cause.NODE_LOST
    if (first := _REASON.match(failure.message)) and first[0] in DISRUPTION_REASONS:
        return DISRUPTION_REASONS[first[0]]  # the reason of a pod that was taken away comes first
    told = lines or failure.message.splitlines()
    lost = lost_by_mpirun(told)  # that is, as a rule, in another container
    said = None if lost else said_cause(told)
    # A kill that nobody explains, of a container that has a limit.
    is_killed = failure.exit_code == _KILLED and bool(failure.memory_limit) and not lost
    if is_killed or (said is not None and said.cause is Cause.OUT_OF_MEMORY):
        return Cause.OUT_OF_MEMORY
    if failure.is_initial:
        return Cause.INIT_CONTAINER_FAILED
    return said.cause if said is not None else Cause.CONTAINER_FAILED


def _finding(view: JobView, cause: Cause, failed: list[FailedContainer], *, is_first: bool) -> Finding:
    first = failed[0]
    done = ended_first(view, first.failure)
    certainty = Certainty.CERTAIN
    if cause in READ_FROM_WORDS and first.failure.reason != OOM_KILLED:
        certainty = Certainty.LIKELY
    elif done or (cause is Cause.CONTAINER_FAILED and not is_first):
        certainty = Certainty.POSSIBLE
    elif first.failure.order[1] and not first.failure.was_refused:
        certainty = Certainty.POSSIBLE  # it lost a peer, or was ended by others
    alike = {role_of(each.pod) for each in failed if each.failure.exit_code == first.failure.exit_code}
    evidence = [
        *(Evidence(reference_to({"kind": "Pod", **pod}), told_first(done)) for pod in done[:1]),
        _described(first, others=len(alike) - 1),
    ]
    probe = _failed_probe(view, first)
    if probe is not None:
        certainty = Certainty.CERTAIN
        evidence.append(probe)
    evidence += _said(first)
    if certainty is Certainty.POSSIBLE and is_first and not done and first.failure.lost_a_peer:
        text = "it lost another rank, of which no failure is known: that ended with exit code 0, or was not reached"
        evidence.append(Evidence(_reference(first), text))
    limit = _limit(first) if cause is Cause.OUT_OF_MEMORY else ""
    if limit:
        evidence.append(Evidence(_reference(first), limit))
    advice = advice_for(view, cause, first.failure, lines=first.lines)
    if probe is not None:
        advice = [_PROBE_ADVICE, *advice]
    return Finding(cause, certainty, evidence, parse_time(first.failure.at), advice)


def _failed_probe(view: JobView, failed: FailedContainer) -> Evidence | None:
    """Return that the kubelet ended a container because of a probe, if it says so."""
    for event in view.events_about("Pod", failed.pod["metadata"]["name"]):
        if event.reason == "Killing" and failed.failure.container in event.note and _PROBE.search(event.note):
            return Evidence(_reference(failed), f"Killing: {one_line(event.note)}", event.last)
    return None


def ended_first(view: JobView, failure: ContainerFailure) -> list[JsonObject]:
    """Return the pods of the nodes that had done their work when a container failed because it lost them."""
    if not failure.lost_a_peer:
        return []
    pods = {(place_of(pod), restart_attempt(pod)): pod for pod in known_pods(view)}
    return [
        pod
        for (_, attempt), pod in pods.items()
        if attempt == failure.attempt
        and labels_of(pod).get(REPLICATED_JOB_LABEL, "") == failure.replicated_job
        and (has_succeeded(pod) or _had_finished(view, pod, failure.container))
    ]


def told_first(done: Sequence[JsonObject]) -> str:
    """Say which nodes ended first, as all say it that name the cause of a failure."""
    return f"{who(done)} ended first, with exit code 0"


def _had_finished(view: JobView, pod: JsonObject, container: str) -> bool:
    """Tell whether all processes of a node had ended with 0 when it was stopped, as its torchrun said last."""
    ends = [(each.get("state") or {}).get("terminated") or {} for each in container_statuses(pod)]
    said = [*view.log_of(pod, container), *(str(end.get("message") or "") for end in ends)]
    return any(map(_STOPPED_AT_BARRIER.search, said))


def _described(failed: FailedContainer, *, others: int) -> Evidence:
    failure = failed.failure
    reason = "" if failure.reason in _UNTOLD else f", {failure.reason}"
    meaning = "" if reason else meaning_of(failure.exit_code)
    and_others = f" and {others} other{'s' if others > 1 else ''}" if others else ""
    attempt = f", attempt {failure.attempt}" if failure.attempt else ""
    again = f", restart {failure.run}" if failure.run else ""
    code = f"exit code {failure.exit_code}{reason}{f' ({meaning})' if meaning else ''}"
    first = failed_rank("\n".join(failed.lines)) if len(failure.ranks or ()) != 1 else None
    rank = "" if first is None else f", rank {first} first"
    text = f"{role_of(failed.pod)}{and_others}: container {failure.container} failed with {code}{rank}{attempt}{again}"
    return Evidence(_reference(failed), text, parse_time(failure.at))


def _said(failed: FailedContainer) -> list[Evidence]:
    said = None if lost_by_mpirun(failed.lines) else said_cause(failed.lines)
    words = one_line(said.line) if said else last_words("\n".join(failed.lines))
    return [Evidence(_reference(failed), f"it said last: {words}")] if words else []


def _limit(failed: FailedContainer) -> str:
    return (
        f"its limit of memory is {failed.failure.memory_limit}"
        if failed.failure.memory_limit
        else "it has no limit of memory of its own"
    )


def _reference(failed: FailedContainer) -> ObjectReference:
    return reference_to({"kind": "Pod", **failed.pod})
