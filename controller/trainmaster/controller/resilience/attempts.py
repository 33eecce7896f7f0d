"""What the pods of jobs with a resilience policy told of the attempts that ended, by the events of a watch.

A pod that failed may be gone a moment later, with the Job that it was of: what it told last is kept here, until its
attempt is in the status of its job. After a restart of the manager only what pods still tell is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.controller.container_failures import (
    JOBSET_LABEL,
    JOBSET_UID_LABEL,
    ContainerFailure,
    container_failures,
    restart_attempt,
)
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.runtime.api.constants import RESILIENCE_LABEL
from trainmaster.runtime.jsontree import JsonObject

_MOST_ATTEMPTS: Final = 4
"""That are kept of a job: attempts are written down as they end."""

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_KILLED: Final = frozenset({137, 143})


@dataclass(frozen=True, slots=True)
class Disruption:
    """A pod that was taken away."""

    pod: str
    node: str
    at: str
    """RFC 3339."""

    text: str
    """By whom and why, as far as that is known."""


@dataclass(slots=True)
class AttemptFacts:
    """What is known of one attempt."""

    failure: ContainerFailure | None = None
    """The likeliest first one."""

    node: str = ""
    """Where that was."""

    disruption: Disruption | None = None
    """The first one."""

    newest_pod: str = ""
    """When the last pod was made, in RFC 3339."""

    @property
    def is_disrupted(self) -> bool:
        """Whether the attempt ended because a pod was taken away: what failed then lost a peer, or was killed."""
        if self.disruption is None or self.failure is None:
            return self.disruption is not None
        by_it = self.failure.lost_a_peer or self.failure.exit_code in _KILLED
        return by_it or self.disruption.at <= self.failure.at


class AttemptObserver:
    """Remembers what pods told.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._facts: dict[str, dict[tuple[str, int], AttemptFacts]] = {}
        """By key of the job, then by UID of the JobSet and attempt."""

    def on_pod_event(self, change: Delta) -> None:
        """Handle an event of a pod."""
        pod = change.new or change.old
        metadata = pod["metadata"] if pod else {}
        labels = metadata.get("labels") or {}
        if pod is None or RESILIENCE_LABEL not in labels or not labels.get(JOBSET_UID_LABEL):
            return
        key = f"{metadata['namespace']}/{labels.get(JOBSET_LABEL)}"
        attempts = self._facts.setdefault(key, {})
        facts = attempts.setdefault((labels[JOBSET_UID_LABEL], restart_attempt(pod)), AttemptFacts())
        while len(attempts) > _MOST_ATTEMPTS:
            del attempts[next(iter(attempts))]
        self._note(facts, pod, is_gone=change.is_deletion)

    def _note(self, facts: AttemptFacts, pod: JsonObject, *, is_gone: bool) -> None:
        created = pod["metadata"].get("creationTimestamp") or ""
        if facts.disruption is not None and created > facts.disruption.at:
            facts.disruption = None  # the attempt went on with new pods: it was suspended meanwhile
        facts.newest_pod = max(facts.newest_pod, created)
        node = (pod.get("spec") or {}).get("nodeName") or ""
        for failure in container_failures(pod):
            if failure.stopped or (facts.failure is not None and facts.failure.precedence <= failure.precedence):
                continue
            facts.failure, facts.node = failure, node
        if facts.disruption is None and facts.failure is None:
            facts.disruption = self._disruption(pod, node, is_gone=is_gone) or facts.disruption
        elif facts.disruption is None:
            facts.disruption = _disruption_target(pod, node)

    def _disruption(self, pod: JsonObject, node: str, *, is_gone: bool) -> Disruption | None:
        """Return who took a pod away; of one that is deleted while nothing has failed, somebody did."""
        told = _disruption_target(pod, node)
        metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
        if told is not None or phase in _ENDED or not (is_gone or metadata.get("deletionTimestamp")):
            return told
        return Disruption(metadata["name"], node, time_text(self._clock.now()), "it was deleted while it ran")

    def facts(self, key: str, jobset_uid: str, attempt: int) -> AttemptFacts:
        """Return what is known of an attempt of a JobSet."""
        return self._facts.get(key, {}).get((jobset_uid, attempt)) or AttemptFacts()

    def forget(self, key: str) -> None:
        """Drop everything about a job."""
        self._facts.pop(key, None)


def _disruption_target(pod: JsonObject, node: str) -> Disruption | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            told = ": ".join(each for each in (condition.get("reason"), condition.get("message")) if each)
            return Disruption(pod["metadata"]["name"], node, str(condition.get("lastTransitionTime") or ""), told)
    return None
