"""Containers that failed, each with one cause: by its reason, its exit code, and the last that it said.

OutOfMemory, InitContainerFailed, NameResolutionFailed, RendezvousTimeout, WorldSizeMismatch, ContainerFailed. What a
container fails of because another one had gone before is the weakest finding. Of pods that are gone, `told` knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trainmaster.controller.container_failures import (
    LOST_A_PEER,
    OOM_KILLED,
    REPLICATED_JOB_LABEL,
    STATUS_UNKNOWN,
    ContainerFailure,
    container_failures,
    meaning_of,
)
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.advice import advice_for
from trainmaster.controller.explain.causes.failures.last_said import READ_FROM_WORDS, said_cause
from trainmaster.controller.explain.causes.pods.evidence import labels_of, one_line, spec_of, who
from trainmaster.controller.explain.findings import (
    Certainty,
    Evidence,
    Finding,
    ObjectReference,
    parse_time,
    reference_to,
)
from trainmaster.controller.explain.pods import condition_of, current_pods, has_succeeded
from trainmaster.controller.explain.view import JobView, role_of
from trainmaster.controller.last_words import last_words, lost_by_mpirun
from trainmaster.runtime.jsontree import JsonObject

_INITIALIZERS: Final = frozenset({"dataset-initializer", "model-initializer"})
_KILLED: Final = 137
_LONGEST_MESSAGE: Final = 2048
"""Characters: as much as a kubelet keeps of a log."""

_PROBE: Final = re.compile(r"failed (liveness|startup) probe")
_PROBE_ADVICE: Final = "give the probe more time, or leave it out: a rank that is busy with a step answers late"
_UNTOLD: Final = frozenset({"", "Error"})
_TERMINATED: Final = frozenset({"DeadlineExceeded", "Evicted", "NodeLost", "Preempting", "Terminated", "NodeShutdown"})
"""Reasons of pods that failed as a whole: their containers only ended with them."""

_MOST: Final = 200
"""Failures whose words are read, the first ones: what came after them tells nothing new."""


@dataclass(frozen=True, slots=True)
class FailedContainer:
    """A failure of a container, with its pod and the last lines that are known of it."""

    pod: JsonObject
    failure: ContainerFailure
    lines: Sequence[str]

    @property
    def is_initial(self) -> bool:
        """Whether the container prepares those that train."""
        names = [each.get("name") for each in spec_of(self.pod).get("initContainers") or ()]
        return self.failure.container in names or labels_of(self.pod).get(REPLICATED_JOB_LABEL) in _INITIALIZERS

    @property
    def memory_limit(self) -> str:
        """The limit of its memory; empty if it has none."""
        spec = spec_of(self.pod)
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        found: JsonObject = next((each for each in containers if each.get("name") == self.failure.container), {})
        return str(((found.get("resources") or {}).get("limits") or {}).get("memory") or "")

    @property
    def order(self) -> tuple[str, bool, int]:
        """Sorts failures: the one that is most likely the cause of the others comes first."""
        return self.failure.order


def failed_containers(view: JobView) -> Iterator[Finding]:
    """Find why containers failed in the last attempt, by cause."""
    failed = sorted(_last_attempt(_failed(view)), key=lambda each: each.order)
    by_cause: dict[Cause, list[FailedContainer]] = {}
    for each in failed[:_MOST]:
        by_cause.setdefault(_cause(each), []).append(each)
    for cause, of_cause in by_cause.items():
        is_first = of_cause[0] is failed[0]
        found = _finding(view, cause, of_cause, is_first=is_first)
        if is_first and len(failed) > _MOST:
            more = Evidence(view.reference, f"{len(failed) - _MOST} more containers failed, later than {_MOST} others")
            found = replace(found, evidence=[*found.evidence, more])
        yield found


def _failed(view: JobView) -> Iterator[FailedContainer]:
    for pod in view.pods or ():
        status = pod.get("status") or {}
        if condition_of(pod, "DisruptionTarget").get("status") == "True" or status.get("reason") in _TERMINATED:
            continue
        for failure in container_failures(pod):
            if failure.superseded or failure.stopped or failure.reason == STATUS_UNKNOWN:
                continue
            known = with_last_lines(view, pod, failure)
            yield FailedContainer(pod, known, view.log_of(pod, failure.container) or failure.message.splitlines())


def with_last_lines(view: JobView, pod: JsonObject, failure: ContainerFailure) -> ContainerFailure:
    """Return a failure with the end of its log as its message, if it has none: that tells whether a peer was lost."""
    if failure.message:
        return failure
    return replace(failure, message="\n".join(view.log_of(pod, failure.container))[-_LONGEST_MESSAGE:])


def _last_attempt(failed: Iterable[FailedContainer]) -> list[FailedContainer]:
    known = list(failed)
    last = max((each.failure.attempt for each in known), default=0)
    return [each for each in known if each.failure.attempt == last]


def _cause(failed: FailedContainer) -> Cause:
    failure = failed.failure
    if failure.reason == OOM_KILLED or _is_out_of_memory(failed):
        return Cause.OUT_OF_MEMORY
    if failed.is_initial:
        return Cause.INIT_CONTAINER_FAILED
    said = said_cause(failed.lines)
    return said[0] if said else Cause.CONTAINER_FAILED


_KERNEL_SAYS: Final = re.compile(
    r"oom[-_ ]?kill|out of memory: killed process|memory cgroup out of memory"
    r"|killed by signal: killed|\(SIGKILL\)|signal 9\b|exitcode\s*: -9\b|exitcode: -9\b",
    re.IGNORECASE,
)
"""What the kernel, a loader of data and torchrun say when a process of theirs was killed."""


def _is_out_of_memory(failed: FailedContainer) -> bool:
    """Say whether a container that nobody called OOMKilled was killed for want of memory all the same."""
    if lost_by_mpirun(failed.lines):
        return False  # what was killed is a rank, as a rule of another container, and the exit code is its own
    killed = failed.failure.exit_code == _KILLED
    return any(_KERNEL_SAYS.search(line) for line in failed.lines) or (killed and bool(failed.memory_limit))


def _finding(view: JobView, cause: Cause, failed: list[FailedContainer], *, is_first: bool) -> Finding:
    first = failed[0]
    certainty = Certainty.CERTAIN
    if cause in READ_FROM_WORDS or (cause is Cause.OUT_OF_MEMORY and first.failure.reason != OOM_KILLED):
        certainty = Certainty.LIKELY
    elif first.failure.order[1] or (cause is Cause.CONTAINER_FAILED and not is_first):
        certainty = Certainty.POSSIBLE  # it lost a peer, or was ended by others
    evidence = [_described(first, others=len({role_of(each.pod) for each in failed}) - 1)]
    probe = _failed_probe(view, first)
    if probe is not None:
        certainty = Certainty.CERTAIN
        evidence.append(probe)
    evidence += _said(first)
    if certainty is Certainty.POSSIBLE:
        evidence += _ended_before(view, first)
    limit = _limit(first) if cause is Cause.OUT_OF_MEMORY else ""
    if limit:
        evidence.append(Evidence(_reference(first), limit))
    advice = advice_for(view, cause, first.failure, limit=first.memory_limit, lines=first.lines)
    if probe is not None:
        advice = [_PROBE_ADVICE, *advice]
    return Finding(cause, certainty, evidence, parse_time(first.failure.at), advice)


def _failed_probe(view: JobView, failed: FailedContainer) -> Evidence | None:
    """Return that the kubelet ended a container because of a probe, if it says so."""
    for event in view.events_about("Pod", failed.pod["metadata"]["name"]):
        if event.reason == "Killing" and failed.failure.container in event.note and _PROBE.search(event.note):
            return Evidence(_reference(failed), f"Killing: {one_line(event.note)}", event.last)
    return None


def _ended_before(view: JobView, failed: FailedContainer) -> Iterator[Evidence]:
    """Yield the rank that had done its work when another one lost it."""
    done = [pod for pod in current_pods(view) if has_succeeded(pod)]
    if done and LOST_A_PEER.search(failed.failure.message):
        text = f"{who(done)} had ended with exit code 0, while {role_of(failed.pod)} still went on"
        yield Evidence(reference_to({"kind": "Pod", **done[0]}), text)


def _described(failed: FailedContainer, *, others: int) -> Evidence:
    failure = failed.failure
    reason = "" if failure.reason in _UNTOLD else f", {failure.reason}"
    meaning = "" if reason else meaning_of(failure.exit_code)
    and_others = f" and {others} other{'s' if others > 1 else ''}" if others else ""
    attempt = f", attempt {failure.attempt}" if failure.attempt else ""
    again = f", restart {failure.run}" if failure.run else ""
    code = f"exit code {failure.exit_code}{reason}{f' ({meaning})' if meaning else ''}"
    text = f"{role_of(failed.pod)}{and_others}: container {failure.container} failed with {code}{attempt}{again}"
    return Evidence(_reference(failed), text, parse_time(failure.at))


def _said(failed: FailedContainer) -> list[Evidence]:
    said = said_cause(failed.lines)
    words = one_line(said[1]) if said else last_words("\n".join(failed.lines))
    return [Evidence(_reference(failed), f"it said last: {words}")] if words else []


def _limit(failed: FailedContainer) -> str:
    return (
        f"its limit of memory is {failed.memory_limit}"
        if failed.memory_limit
        else "it has no limit of memory of its own"
    )


def _reference(failed: FailedContainer) -> ObjectReference:
    return reference_to({"kind": "Pod", **failed.pod})
