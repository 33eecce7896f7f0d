"""What the pods of jobs with a resilience policy told of the attempts that ended, by the events of a watch.

A pod that failed may be gone a moment later, with the Job that it was of: what it told last is kept here, until its
attempt is in the status of its job, or as long as there is that. After a restart of the manager only what pods still
tell is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from trainmaster.controller.container_failures import (
    ENDED_BY_OTHERS,
    JOBSET_UID_LABEL,
    OOM_KILLED,
    ContainerFailure,
    container_failures,
    disruption_of,
    is_launcher,
    restart_attempt,
)
from trainmaster.controller.explain.pods import has_ended, has_succeeded
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import StoreReader
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.resilience.goodput import PodTimes, note_pod
from trainmaster.runtime.jobs.constants import REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resilience import job_of_pod

_MOST_ATTEMPTS: Final = 4
"""That are kept of a job: attempts are written down as they end."""

PATIENCE: Final = 3.0
"""Seconds for which pods may take to tell of an attempt that has ended."""

_DELETED: Final = "it was deleted while it ran"


@dataclass(frozen=True, slots=True)
class Disruption:
    """A pod that was taken away."""

    pod: str
    node: str
    at: str
    """RFC 3339."""

    text: str
    """By whom and why, as far as that is known."""

    is_certain: bool = True
    """Whether the cluster said so; else the pod was deleted while it ran, by whomever."""


@dataclass(slots=True)
class AttemptFacts:
    """What is known of one attempt."""

    failure: ContainerFailure | None = None
    """The likeliest first one."""

    node: str = ""
    """Where that was."""

    disruption: Disruption | None = None
    """The first one."""

    pods: dict[tuple[int, str], PodTimes] = field(default_factory=dict)
    """When they were created and ran."""

    @property
    def pod(self) -> str:
        """The pod that told of the end; empty if none did."""
        told = self.disruption or self.failure
        return told.pod if told is not None else ""

    @property
    def is_open(self) -> bool:
        """Whether pods may have more to tell: why a rank lost its peer, for instance."""
        return self.disruption is None and (self.failure is None or self.failure.lost_a_peer)

    @property
    def is_disrupted(self) -> bool:
        """Whether the attempt ended because a pod was taken away: what failed then lost a peer, or was killed."""
        if self.disruption is None or self.failure is None:
            return self.disruption is not None
        disruption, failure = self.disruption, self.failure
        if failure.lost_a_peer or disruption.at < failure.at:
            return True
        if not disruption.is_certain:  # after a failure the JobSet deletes all pods, within the same second
            return disruption.at == failure.at and disruption.pod == failure.pod
        was_killed = failure.exit_code in ENDED_BY_OTHERS and failure.reason != OOM_KILLED
        return was_killed or disruption.at == failure.at

    def note(self, pod: JsonObject, failures: Iterable[ContainerFailure], *, deleted_at: str = "") -> None:
        """Take what a pod tells.

        Args:
            deleted_at: When somebody deleted it while it ran, RFC 3339; empty if nobody did.
        """
        node = (pod.get("spec") or {}).get("nodeName") or ""
        for failure in failures:
            if failure.stopped or (self.failure is not None and self.failure.precedence <= failure.precedence):
                continue
            self.failure, self.node = failure, node
        name, told = pod["metadata"]["name"], disruption_of(pod)
        if told is not None and (self.disruption is None or not self.disruption.is_certain):
            why, since = told
            self.disruption = Disruption(name, node, since, why)
        elif self.disruption is None and self.failure is None and deleted_at:
            self.disruption = Disruption(name, node, deleted_at, _DELETED, is_certain=False)


class AttemptObserver:
    """Remembers what pods told."""

    def __init__(self, clock: Clock, trainjobs: StoreReader) -> None:
        self._clock = clock
        self._trainjobs = trainjobs
        self._facts: dict[str, dict[tuple[str, int], AttemptFacts]] = {}
        """By key of the job, then by UID of the JobSet and attempt."""

    def on_pod_event(self, change: Delta) -> None:
        """Handle an event of a pod."""
        pod = change.new or change.old
        key = next(job_of_pod(pod), None) if pod is not None else None
        if pod is None or key is None or not attempt_of(pod)[0]:
            return
        if change.is_deletion and key not in self._trainjobs:
            self.forget(key)
            return
        for other in job_of_pod(change.old) if change.old is not None else ():
            if other != key and other not in self._trainjobs:
                self.forget(other)  # labels can be changed any number of times
        attempts = self._facts.setdefault(key, {})
        facts = attempts.setdefault(attempt_of(pod), AttemptFacts())
        while len(attempts) > _MOST_ATTEMPTS:
            del attempts[next(iter(attempts))]
        self._note(facts, pod, change)

    def _note(self, facts: AttemptFacts, pod: JsonObject, change: Delta) -> None:
        if facts.pod and _takes_place_of(facts.pod, pod):
            facts.disruption = facts.failure = None  # the attempt went on: it was suspended meanwhile
        note_pod(facts.pods, pod)
        deleted_at = time_text(self._clock.now()) if _is_deleted(pod, change) else ""
        facts.note(pod, container_failures(pod), deleted_at=deleted_at)

    def facts(self, key: str, jobset_uid: str, attempt: int) -> AttemptFacts:
        """Return what is known of an attempt of a JobSet."""
        return self._facts.get(key, {}).get((jobset_uid, attempt)) or AttemptFacts()

    def forget(self, key: str) -> None:
        """Drop everything about a job."""
        self._facts.pop(key, None)


def attempt_of(pod: JsonObject) -> tuple[str, int]:
    """Return the UID of the JobSet of a pod, empty if it has none, and the number of its attempt."""
    return (pod["metadata"].get("labels") or {}).get(JOBSET_UID_LABEL) or "", restart_attempt(pod)


def _is_deleted(pod: JsonObject, change: Delta) -> bool:
    """Tell whether a pod goes that has not ended; of one that was found so, or gone, nobody knows what was before."""
    deleted = change.is_deletion or pod["metadata"].get("deletionTimestamp")
    return bool(deleted) and not (change.initial or change.final_state_unknown or has_ended(pod))


def _takes_place_of(name: str, pod: JsonObject) -> bool:
    """Tell whether a pod was made in the place of another one: but for the end, which is random, it has its name."""
    own = pod["metadata"]["name"]
    return bool(own != name and own.rpartition("-")[0] == name.rpartition("-")[0])


def facts_of_group(pods: Sequence[JsonObject], missing: Sequence[str], now: datetime) -> tuple[AttemptFacts, float]:
    """Return what the pods of a job of `kubeflow.org/v1` tell of the end of their attempt; `missing` ones are gone.

    Returns:
        That, and for how many seconds other pods may have more to tell; 0: they have not.
    """
    facts = AttemptFacts()
    for pod in sorted(pods, key=is_launcher):
        if is_launcher(pod) and facts.pod:
            continue  # its ranks run on the workers
        failures = (replace(each, replicated_job=_title(pod)) for each in container_failures(pod))
        facts.note(pod, failures, deleted_at=time_text(now) if was_deleted(pod) else "")
    by_launcher = any(is_launcher(pod) and pod["metadata"]["name"] == facts.pod for pod in pods)
    if not (facts.is_open or (facts.disruption is None and by_launcher)):
        return facts, 0.0
    if missing:
        facts.disruption = Disruption(missing[0], "", time_text(now), "it is gone", is_certain=False)
        return facts, 0.0
    return facts, _seconds_to_wait(facts.failure, now) if facts.failure is not None else 0.0


def was_deleted(pod: JsonObject) -> bool:
    """Tell whether a pod is deleted that has not ended well."""
    return bool(pod["metadata"].get("deletionTimestamp")) and not has_succeeded(pod)


def _title(pod: JsonObject) -> str:
    labels = pod["metadata"].get("labels") or {}
    place = "" if is_launcher(pod) else f" {labels.get(REPLICA_INDEX_LABEL)}"
    return f"{labels.get(REPLICA_TYPE_LABEL)}{place}"


def _seconds_to_wait(failure: ContainerFailure, now: datetime) -> float:
    """Return for how long others may have more to tell of a failure; clocks of nodes that are ahead do not matter."""
    try:
        passed = (now - datetime.fromisoformat(failure.at)).total_seconds()
    except (TypeError, ValueError):
        return 0.0
    return PATIENCE - passed if 0 <= passed < PATIENCE else 0.0
