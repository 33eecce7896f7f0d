"""Statuses of followed jobs, as displays get them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainmaster.controller.cli.follow.failures import Failure
from trainmaster.controller.cli.follow.job_status import FollowedJob, JobStatus
from trainmaster.controller.container_failures import ContainerFailure
from trainmaster.runtime.jsontree import JsonObject

CREATED = "2024-01-01T00:00:00Z"


def job_status(name: str = "mnist", *, namespace: str = "default", **fields: Any) -> JobStatus:
    """A job of which only what is named is known."""
    status = JobStatus(FollowedJob(namespace, name, f"uid-of-{name}", CREATED))
    for field, value in fields.items():
        setattr(status, field, value)
    return status


def pods(*phases: str, group: str = "node", reason: str | None = None) -> dict[str, JsonObject]:
    """The pods of a group, in their order, by UID; those that are pending may be kept by something."""
    return {
        f"{group}-{index}": pod(phase, group=group, index=index, reason=reason) for index, phase in enumerate(phases)
    }


def pod(
    phase: str, *, group: str = "node", index: int = 0, reason: str | None = None, created: str = CREATED
) -> JsonObject:
    """A pod of a group."""
    waiting = [{"name": "node", "state": {"waiting": {"reason": reason}}}] if reason and phase == "Pending" else []
    return {
        "metadata": {
            "name": f"mnist-{group}-0-{index}-x7k2p",
            "uid": f"{group}-{index}",
            "creationTimestamp": created,
            "labels": {
                "jobset.sigs.k8s.io/replicatedjob-name": group,
                "jobset.sigs.k8s.io/job-index": "0",
                "batch.kubernetes.io/job-completion-index": str(index),
            },
        },
        "spec": {"containers": [{"name": "node"}]},
        "status": {"phase": phase, "containerStatuses": waiting},
    }


def failure(
    *lines: str, rank: int | None = 1, exit_code: int = 1, at: str = CREATED, attempt: int = 0, run: int = 0
) -> Failure:
    """A run of a container that failed."""
    container = "node" if rank is not None else "dataset-initializer"
    return Failure(
        ContainerFailure(
            pod=f"mnist-node-0-{rank}-x7k2p",
            pod_uid=f"node-{rank}-{attempt}",
            container=container,
            rank=rank,
            attempt=attempt,
            run=run,
            exit_code=exit_code,
            reason="Error",
            message="",
            at=at,
        ),
        lines,
    )


def condition(kind: str, *, at: str = CREATED, reason: str = "", message: str = "") -> dict[str, JsonObject]:
    """The conditions of a job of which one is true."""
    told = {"type": kind, "status": "True", "lastTransitionTime": at, "reason": reason, "message": message}
    return {kind: told}


def numbered(prefix: str, count: int) -> Sequence[str]:
    """Lines of a log."""
    return [f"{prefix} {number}" for number in range(count)]
