"""The status of a TrainJob and its pods, for the person who waits for them; pure functions over API objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from trainmaster.controller.cli.follow.runtime_reference import RuntimeReference
from trainmaster.controller.reconciling.problems import BLOCKED, RUNTIME_NOT_FOUND
from trainmaster.runtime.api.constants import COMPLETE, COMPLETION_INDEX_ANNOTATION, FAILED, NODE, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
_REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"

DELETED: Final = "Deleted"


@dataclass(frozen=True, slots=True)
class ContainerFailure:
    """How a container ended that should not have."""

    pod: str
    container: str
    exit_code: int
    reason: str
    at: str
    restarts: int

    @property
    def text(self) -> str:
        """One line about it."""
        reason = f" ({self.reason})" if self.reason not in {"", "Error"} else ""
        return f"pod {self.pod}, container {self.container}: exit code {self.exit_code}{reason}"


@dataclass(frozen=True, slots=True)
class FollowedJob:
    """A TrainJob that somebody waits for."""

    namespace: str
    name: str
    uid: str
    created: str
    """When, by the clock of the server."""

    runtime: RuntimeReference | None = None
    """What it is made of; None if that is not for Trainer to find."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True)
class JobStatus:
    """One TrainJob as far as it is known."""

    job: FollowedJob
    conditions: dict[str, JsonObject] = field(default_factory=dict)
    """The true ones, by type."""

    pods: dict[str, JsonObject] = field(default_factory=dict)
    """By UID."""

    deleted: bool = False

    @property
    def outcome(self) -> str | None:
        """How it ended: `Complete`, `Failed` or `Deleted`; None while it may still run."""
        ended = next((each for each in (COMPLETE, FAILED) if each in self.conditions), None)
        return ended or (DELETED if self.deleted else None)

    @property
    def lacks_runtime(self) -> bool:
        """Whether it waits for a runtime that does not exist, and that nobody is about to create."""
        reference, blocked = self.job.runtime, self.conditions.get(BLOCKED, {})
        return reference is not None and not reference.supplied and blocked.get("reason") == RUNTIME_NOT_FOUND

    @property
    def state(self) -> str:
        """One word for what it is at."""
        if outcome := self.outcome:
            return outcome
        if SUSPENDED in self.conditions:
            return SUSPENDED
        if blocked := next(iter(self.conditions), None):
            return blocked
        return "Running" if any(pod_phase(pod) == "Running" for pod in self.pods.values()) else "Pending"

    @property
    def pod_summary(self) -> str:
        """How many pods are in which phase."""
        counts: dict[str, int] = {}
        for pod in self.pods.values():
            counts[pod_phase(pod)] = counts.get(pod_phase(pod), 0) + 1
        return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no pods yet"


def true_conditions(trainjob: JsonObject) -> dict[str, JsonObject]:
    """Return the conditions that hold, by type."""
    conditions = (trainjob.get("status") or {}).get("conditions") or ()
    return {each["type"]: each for each in conditions if each["status"] == "True"}


def pod_phase(pod: JsonObject) -> str:
    """Return the phase of a pod, or what keeps it from running if that is known."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in {"Succeeded", "Failed"}:
        return "Terminating"
    if status.get("phase") in {None, "Pending"}:
        for container in _statuses(pod):
            waiting = (container.get("state") or {}).get("waiting")
            if waiting and waiting.get("reason"):
                return str(waiting["reason"])
    return str(status.get("phase") or "Pending")


def is_rank_zero(pod: JsonObject) -> bool:
    """Whether its trainer container is the one of rank 0."""
    labels = pod["metadata"].get("labels") or {}
    return (
        labels.get(_REPLICATED_JOB_LABEL) == NODE
        and labels.get(COMPLETION_INDEX_ANNOTATION, "0") == "0"
        and labels.get(_JOB_INDEX_LABEL, "0") == "0"
        and any(container["name"] == NODE for container in pod["spec"]["containers"])
    )


def container_attempt(pod: JsonObject, container: str) -> int | None:
    """Return which run of a container has a log that can be read, counting from 0; None before its first start."""
    for status in _statuses(pod):
        state = status.get("state") or {}
        if status["name"] == container and ("running" in state or "terminated" in state):
            return int(status.get("restartCount", 0))
    return None


def container_failures(pod: JsonObject) -> list[ContainerFailure]:
    """Return the containers of a pod whose latest run failed."""
    found = []
    for status in _statuses(pod):
        ended = (status.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode", 0) != 0:
            found.append(
                ContainerFailure(
                    pod["metadata"]["name"],
                    status["name"],
                    ended["exitCode"],
                    ended.get("reason") or "",
                    ended.get("finishedAt") or "",
                    status.get("restartCount", 0),
                )
            )
    return found


def _statuses(pod: JsonObject) -> list[JsonObject]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
