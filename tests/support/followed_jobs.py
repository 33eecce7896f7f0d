"""Statuses of followed jobs, as displays get them."""

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
    set_conditions(status, fields.pop("conditions", {}))
    set_failures(status, *fields.pop("failures", ()))
    for field, value in fields.items():
        setattr(status, field, value)
    return status


def set_conditions(status: JobStatus, conditions: dict[str, JsonObject]) -> None:
    """Have a job say this of itself."""
    status.object = {"status": {"conditions": list(conditions.values())}}


def set_failures(status: JobStatus, *failures: Failure) -> None:
    """Have these containers of a job failed, in pods that are deleted by now."""
    status.failures = list(failures)
    status.past_pods = {each.failure.pod_uid: _failed_pod(each.failure) for each in failures}


def _failed_pod(failure: ContainerFailure) -> JsonObject:
    failed = pod("Failed", group="node" if failure.rank is not None else failure.container, index=failure.rank or 0)
    failed["metadata"] |= {"name": failure.pod, "uid": failure.pod_uid, "creationTimestamp": "2023-12-31T23:59:59Z"}
    failed["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = str(failure.attempt)
    ended = {"exitCode": failure.exit_code, "reason": failure.reason, "finishedAt": failure.at}
    status = {"name": failure.container, "restartCount": failure.run, "state": {"terminated": ended}}
    failed["status"]["containerStatuses"] = [status]
    return failed


def pods(*phases: str, group: str = "node", reason: str | None = None) -> dict[str, JsonObject]:
    """The pods of a group, in their order, by UID; those that are pending may be kept by something."""
    return {
        f"{group}-{index}": pod(phase, group=group, index=index, reason=reason) for index, phase in enumerate(phases)
    }


def pod(
    phase: str, *, group: str = "node", index: int = 0, reason: str | None = None, created: str = CREATED
) -> JsonObject:
    """A pod of a group."""
    states: JsonObject = {"Running": {"running": {}}} | ({"Pending": {"waiting": {"reason": reason}}} if reason else {})
    statuses = [{"name": "node", "state": states[phase]}] if phase in states else []
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
        "status": {"phase": phase, "containerStatuses": statuses},
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
        f"rank {rank}" if rank is not None else f"container {container}",
        lines,
    )


def condition(kind: str, *, at: str = CREATED, reason: str = "", message: str = "") -> dict[str, JsonObject]:
    """The conditions of a job of which one is true."""
    told = {"type": kind, "status": "True", "lastTransitionTime": at, "reason": reason, "message": message}
    return {kind: told}


def numbered(prefix: str, count: int) -> Sequence[str]:
    """Lines of a log."""
    return [f"{prefix} {number}" for number in range(count)]
