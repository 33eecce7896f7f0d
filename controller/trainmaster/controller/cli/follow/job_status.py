"""The status of a job and its pods, for the person who waits for them; pure functions over API objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from trainmaster.controller.cli.follow.failures import Failure
from trainmaster.controller.cli.follow.runtime_reference import RuntimeReference, reference_of
from trainmaster.controller.conditions import BLOCKED, RUNTIME_NOT_FOUND
from trainmaster.controller.container_failures import (
    ContainerFailure,
    container_statuses,
    last_run,
    log_container,
    node_of_replica,
    rank_of,
    restart_attempt,
)
from trainmaster.controller.explain.pods import has_ended, last_failures, places
from trainmaster.controller.explain.state import state_of
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.job_fields import JobFields, Progress, true_conditions
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.api.constants import COMPLETE, FAILED, JOBSET_LABEL
from trainmaster.runtime.jobs.constants import CREATED, JOB_NAME_LABEL, RUNNING, SUCCEEDED
from trainmaster.runtime.jsontree import JsonObject

DELETED: Final = "Deleted"
GOOD: Final = (COMPLETE, SUCCEEDED)
"""The outcomes of jobs that did what they were made for."""

_USUAL: Final = (CREATED, RUNNING)
"""Conditions of jobs of `kubeflow.org/v1` that say no more than their pods do."""

UNKNOWN: Final = "Unknown"

_MASTERS: Final = ("master", "chief")


@dataclass(frozen=True, slots=True)
class FollowedJob:
    """A job that somebody waits for."""

    namespace: str
    name: str
    uid: str
    created: str
    """When, by the clock of the server."""

    runtime: RuntimeReference | None = None
    """What it is made of; None if that is not for Trainer to find."""

    resource: Resource = TRAINJOBS
    has_master: bool = False
    """Whether a master or chief comes before its workers, which jobs of `kubeflow.org/v1` may have."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def title(self) -> str:
        """What to call it: kind, namespace and name."""
        return f"{self.resource.kind} {self.key}"

    @property
    def argument(self) -> str:
        """What to write after a command to mean it."""
        return self.name if self.resource == TRAINJOBS else f"{self.resource.kind.lower()}/{self.name}"

    def rank(self, pod: JsonObject) -> int | None:
        """Return which node of the training a pod is; None if it is none."""
        if self.resource == TRAINJOBS:
            return rank_of(pod)
        return node_of_replica(pod, has_master=self.has_master)


@dataclass(slots=True)
class JobStatus:
    """One job as far as it is known."""

    job: FollowedJob
    object: JsonObject = field(default_factory=dict)
    """The job as it was seen last."""

    pods: dict[str, JsonObject] = field(default_factory=dict)
    """By UID."""

    past_pods: dict[str, JsonObject] = field(default_factory=dict)
    """Those that were deleted, as they were seen last."""

    deleted: bool = False

    is_closed: bool = False
    """Whether it has ended and left pods; what they do is no longer of interest."""

    is_attended: bool = False
    """Whether a controller has looked at it: it has a status or pods."""

    unreachable: bool = False
    """Whether the cluster does not answer, so that all of this may be out of date."""

    failures: list[Failure] = field(default_factory=list)
    """Of all runs of all containers, in order of time."""

    last_output: Mapping[str, datetime | None] = field(default_factory=dict)
    """As views have it, when following ends."""

    nodes: int | None = None
    """How many ranks it is to have; None if that is not known yet."""

    progress: Progress | None = None
    """None if the training reports none."""

    _starts: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """Of the container of each rank: UID of the pod, and how often it had been restarted there."""

    _restarts: int = 0

    def observe_pod(self, pod: JsonObject) -> None:
        """Take the state of a pod."""
        self.pods[pod["metadata"]["uid"]] = pod
        self.is_attended = True
        rank, run = self.job.rank(pod), container_attempt(pod, log_container(pod))
        if rank is None or run is None:
            return
        starts = self._starts.setdefault(rank, set())
        starts.add((pod["metadata"]["uid"], run))
        # Of a job that was found running, what was before is known by numbers only.
        self._restarts = max(self._restarts, len(starts) - 1, run + restart_attempt(pod))

    def forget_pod(self, uid: str) -> None:
        """Take note that a pod was deleted."""
        if (pod := self.pods.pop(uid, None)) is not None:
            self.past_pods[uid] = pod

    def pods_before(self, pod: JsonObject) -> int:
        """Return how many pods had the place of a pod before it in its attempt."""
        of_places = places(self.all_pods)
        return next((there.index(pod) for there in of_places if pod in there), 0)

    @property
    def all_pods(self) -> list[JsonObject]:
        """Those that are gone, and those that are there."""
        return [*self.past_pods.values(), *self.pods.values()]

    @property
    def conditions(self) -> dict[str, JsonObject]:
        """The true ones, by type, without those that say no more than pods do."""
        return {kind: each for kind, each in true_conditions(self.object).items() if kind not in _USUAL}

    @property
    def restarts(self) -> int:
        """How often the training was started anew: as a whole, by a new pod of a rank, or by a container in place."""
        return (JobFields(self.object).restarts({}) if self.may_leave_pods else 0) or self._restarts

    @property
    def last_failures(self) -> list[Failure]:
        """Those that were not overcome, the most likely cause of the others first, as `trainmaster explain` has it."""
        if not self.failures:
            return []
        kept = {_key(each.failure): each for each in self.failures}
        found = [each.failure for each in last_failures(self.view)]
        return [replace(kept[_key(each)], failure=each) for each in found if _key(each) in kept]

    @property
    def has_log(self) -> bool:
        """Whether a container that trains has started, as far as its pods or its end tell."""
        return self.outcome in GOOD or any(map(has_log, self.all_pods))

    @property
    def began(self) -> str:
        """Since when it may run, as `trainmaster list` has it."""
        return JobFields(self.object).began or self.job.created

    @property
    def ended(self) -> str | None:
        """When the job completed or failed, by the clock of the server, RFC 3339; None before that, or if deleted."""
        return JobFields(self.object).ended or None

    @property
    def outcome(self) -> str | None:
        """How it ended: `Complete` or `Succeeded`, `Failed` or `Deleted`; None while it may still run."""
        ended = next((each for each in (*GOOD, FAILED) if each in self.conditions), None)
        return ended or (DELETED if self.deleted else None)

    @property
    def may_leave_pods(self) -> bool:
        """Whether it is a job of v1 that has ended: its pods may go on and restart (`cleanPodPolicy: None`)."""
        return self.outcome is not None and self.job.resource != TRAINJOBS

    @property
    def lacks_runtime(self) -> bool:
        """Whether it waits for a runtime that does not exist, and that nobody is about to create."""
        reference, blocked = self.job.runtime, self.conditions.get(BLOCKED, {})
        return reference is not None and not reference.supplied and blocked.get("reason") == RUNTIME_NOT_FOUND

    @property
    def state(self) -> str:
        """One word for what it is at, as `trainmaster list` has it."""
        if outcome := self.outcome:
            return outcome
        return UNKNOWN if self.unreachable else state_of(self.view).word

    @property
    def view(self) -> JobView:
        """What explanations take."""
        job = self.job
        metadata = {"namespace": job.namespace, "name": job.name, "creationTimestamp": job.created}
        obj = {"kind": job.resource.kind, "metadata": metadata, **self.object}
        return JobView(
            obj,
            now=datetime.now(UTC),
            pods=[{"kind": "Pod", **pod} for pod in self.pods.values()],
            former_pods=list(self.past_pods.values()),
            last_output=self.last_output,
            # What a program said last tells who lost a peer, and who was lost.
            logs={(each.failure.pod_uid, each.failure.container): each.lines for each in self.failures},
        )


def followed_job(
    job: JsonObject, resource: Resource = TRAINJOBS, *, runtime: RuntimeReference | None = None
) -> FollowedJob:
    """Return a job that is in the cluster already as one that is followed, of a TrainJob with its runtime."""
    metadata = job["metadata"]
    if resource == TRAINJOBS and runtime is None:
        runtime = reference_of(job, namespace=metadata["namespace"], supplied=())
    spec = job.get("spec") or {}
    specs = [specs for name, specs in spec.items() if name.endswith("ReplicaSpecs") and isinstance(specs, dict)]
    return FollowedJob(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata["creationTimestamp"],
        runtime=runtime,
        resource=resource,
        has_master=any(name.lower() in _MASTERS for each in specs for name in each),
    )


def job_name_of(pod: JsonObject) -> str:
    """Return the name of the job that a pod says it is of."""
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(JOBSET_LABEL) or labels.get(JOB_NAME_LABEL) or "")


def _key(failure: ContainerFailure) -> tuple[str, str, str]:
    return failure.pod_uid, failure.container, failure.at


def pod_phase(pod: JsonObject) -> str:
    """Return the phase of a pod, or what keeps it from running if that is known."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") and not has_ended(pod):
        return "Terminating"
    if status.get("phase") in {None, "Pending"}:
        for container in container_statuses(pod):
            waiting = (container.get("state") or {}).get("waiting")
            if waiting and waiting.get("reason"):
                return str(waiting["reason"])
    return str(status.get("phase") or "Pending")


def why_failed(pod: JsonObject) -> str:
    """Return why a pod as a whole has failed, to be put behind its phase; of most their containers know more."""
    status = pod.get("status") or {}
    told = [status[each] for each in ("reason", "message") if status.get(each)]
    return "".join(f": {each}" for each in told) if status.get("phase") == "Failed" else ""


def has_log(pod: JsonObject) -> bool:
    """Whether the container of a pod that trains has been started, so that it has a log."""
    return container_attempt(pod, log_container(pod)) is not None


def container_attempt(pod: JsonObject, container: str) -> int | None:
    """Return which run of a container has a log that can be read, counting from 0; None before its first start."""
    for status in container_statuses(pod):
        state = status.get("state") or {}
        if status["name"] == container and ("running" in state or "terminated" in state):
            return int(status.get("restartCount", 0))
        if status["name"] == container and "terminated" in (status.get("lastState") or {}):
            return last_run(status)  # it waits for its next start
    return None
