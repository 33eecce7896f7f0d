"""Views of jobs for tests of explain: the TrainJob `team/demo` of four nodes, created at midnight, looked at later."""

from datetime import UTC, datetime, timedelta
from typing import Any

from support.failing_pods import RUNNING, container_status, pod

from trainmaster.controller.explain.findings import Event, parse_event
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
NODES = 4


def at(seconds: float) -> str:
    """So many seconds after midnight, as the API writes it."""
    return (MIDNIGHT + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(seconds: float) -> datetime:
    """So many seconds after midnight."""
    return MIDNIGHT + timedelta(seconds=seconds)


def condition(kind: str, reason: str = "", message: str = "", *, since: float = 5, status: str = "True") -> JsonObject:
    """A condition of any object."""
    return {
        "type": kind,
        "status": status,
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": at(since),
    }


def trainjob(*conditions: JsonObject, status: JsonObject | None = None, **spec: Any) -> JsonObject:
    """The TrainJob."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "demo", "namespace": "team", "uid": "uid-of-demo", "creationTimestamp": at(0)},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
        "status": {**(status or {}), **({"conditions": list(conditions)} if conditions else {})},
    }


def pytorchjob(*conditions: JsonObject, workers: int = 3, **run_policy: Any) -> JsonObject:
    """A job of kubeflow.org/v1 with a master, `team/demo`."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "demo", "namespace": "team", "uid": "uid-of-demo", "creationTimestamp": at(0)},
        "spec": {
            "runPolicy": run_policy,
            "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": workers}},
        },
        "status": {"conditions": list(conditions)} if conditions else {},
    }


def jobset(*conditions: JsonObject, nodes: int = NODES, created: float = 1, **spec: Any) -> JsonObject:
    """Its JobSet, in the first attempt, whose controller has looked at it."""
    job = {"completions": nodes, "parallelism": nodes, "template": {"spec": {"containers": [{"name": "node"}]}}}
    replicated_job = {"name": "node", "replicas": 1, "template": {"spec": job}}
    counts = {"ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "team", "uid": "uid-of-jobset", "creationTimestamp": at(created)},
        "spec": {"replicatedJobs": [replicated_job], **spec},
        "status": {"conditions": list(conditions), "restarts": 0, "replicatedJobsStatus": [{"name": "node", **counts}]},
    }


def job(*conditions: JsonObject, attempt: int = 0, created: float = 2, **spec: Any) -> JsonObject:
    """The Job of its nodes."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "demo", "jobset.sigs.k8s.io/restart-attempt": str(attempt)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "demo-node-0", "namespace": "team", "creationTimestamp": at(created), "labels": labels},
        "spec": {"completions": NODES, "parallelism": NODES, "backoffLimit": 3, **spec},
        "status": {"conditions": list(conditions)},
    }


def running(rank: int = 0, *, started: float = 10, **fields: Any) -> JsonObject:
    """A pod that runs."""
    state = {"running": {"startedAt": at(started)}}
    return pod(rank, containers=[container_status(state)], phase="Running", **fields)


def pending(rank: int = 0, message: str = "", *, since: float = 3, **fields: Any) -> JsonObject:
    """A pod without a node; what the scheduler says of it, if anything."""
    conditions = [condition("PodScheduled", "Unschedulable", message, since=since, status="False")] if message else []
    found = pod(rank, RUNNING, phase="Pending", conditions=conditions, **fields)
    del found["status"]["containerStatuses"]
    return found


def replica(kind: str = "worker", index: int = 0, like: JsonObject | None = None) -> JsonObject:
    """A pod of the job of kubeflow.org/v1, in the state of a pod of the TrainJob; it runs if nothing is said."""
    found = running() if like is None else like
    labels = {
        "training.kubeflow.org/job-name": "demo",
        "training.kubeflow.org/replica-type": kind,
        "training.kubeflow.org/replica-index": str(index),
    }
    name = f"demo-{kind}-{index}"
    return {**found, "metadata": {**found["metadata"], "labels": labels, "name": name, "uid": f"uid-of-{name}"}}


def event(
    reason: str,
    note: str = "",
    *,
    kind: str = "TrainJob",
    name: str = "demo",
    first: float = 5,
    last: float | None = None,
    count: int = 1,
    warning: bool = True,
) -> Event:
    """What somebody said of an object of the namespace."""
    return parse_event(
        {
            "regarding": {"kind": kind, "namespace": "team", "name": name},
            "reason": reason,
            "note": note,
            "type": "Warning" if warning else "Normal",
            "deprecatedFirstTimestamp": at(first),
            "deprecatedLastTimestamp": at(first if last is None else last),
            "deprecatedCount": count,
        }
    )


def view(trainjob_: JsonObject | None = None, *, now: float = 300, **fields: Any) -> JobView:
    """What is known of the job; of what is not named nothing is known."""
    return JobView(trainjob_ or trainjob(), now=moment(now), **fields)
