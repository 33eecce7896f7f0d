"""The objects of the benchmark: jobs as people submit them, the runtime of TrainJobs, what JobSets and pods report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jsontree import JsonObject

NAMESPACE: Final = "trainmaster-bench"
RUNTIME: Final = "trainmaster-bench"
WORKERS: Final = 3
"""Of a PyTorchJob, besides its master."""

_TRAINER = "trainer.kubeflow.org/v1alpha1"


def job_name(number: int) -> str:
    """Return the name of the job with a number."""
    return f"job-{number:06}"


def namespace() -> JsonObject:
    """Build the namespace in which all happens."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def runtime() -> JsonObject:
    """Build a runtime for torchrun with one replicated job and a volume."""
    container = {
        "name": "node",
        "image": "example.com/torch:latest",
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [{"name": "scratch", "emptyDir": {}}]}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    return {
        "apiVersion": _TRAINER,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }


def trainjob(number: int) -> JsonObject:
    """Build a TrainJob of two nodes with two GPUs each."""
    resources = {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": 2}}
    trainer = {
        "numNodes": 2,
        "image": "example.com/team/train:1.4",
        "command": ["torchrun", "train.py"],
        "args": ["--epochs", "10", "--seed", str(number)],
        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
        "resourcesPerNode": resources,
    }
    return {
        "apiVersion": _TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": job_name(number), "namespace": NAMESPACE, "labels": {"team": f"team-{number % 7}"}},
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": trainer},
    }


def pytorchjob(number: int) -> JsonObject:
    """Build a PyTorchJob of a master and three workers with two GPUs each."""
    container = {
        "name": "pytorch",
        "image": "example.com/team/train:1.4",
        "command": ["torchrun", "train.py"],
        "args": ["--epochs", "10", "--seed", str(number)],
        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": 2}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "scratch", "emptyDir": {}}]}

    def replicas(count: int) -> JsonObject:
        return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": job_name(number), "namespace": NAMESPACE, "labels": {"team": f"team-{number % 7}"}},
        "spec": {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(WORKERS)}},
    }


def pod_status(phase: str) -> JsonObject:
    """Build the patch with which a kubelet reports that a pod runs, or has succeeded."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    container = {
        "name": "pytorch",
        "image": "example.com/team/train:1.4",
        "imageID": "",
        "ready": phase == "Running",
        "restartCount": 0,
        "state": {"running": {"startedAt": now}} if phase == "Running" else {"terminated": ended},
    }
    return {"status": {"phase": phase, "startTime": now, "containerStatuses": [container]}}


def running() -> JsonObject:
    """Build the patch with which a JobSet controller reports that all runs."""
    return {"status": {"replicatedJobsStatus": [_counts(active=1, ready=1)]}}


def starting() -> JsonObject:
    """Build the patch with which a JobSet controller reports that there are pods, which are not ready."""
    return {"status": {"replicatedJobsStatus": [_counts(active=1)]}}


def pending_pods(number: int) -> Iterator[JsonObject]:
    """Yield the pods of a TrainJob, for which there is no place: as a Job controller makes them, and a scheduler."""
    message = "0/12 nodes are available: 12 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available."
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    container = {
        "name": "node",
        "image": "example.com/team/train:1.4",
        "command": ["torchrun", "train.py"],
        "env": [{"name": f"PET_{index}", "value": "value"} for index in range(8)],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": 2}},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"{job_name(number)}-node-0",
        "uid": f"{job_name(number)}-node-0",
        "controller": True,
    }
    for index in range(2):
        labels = {
            JOBSET_LABEL: job_name(number),
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "jobset.sigs.k8s.io/job-index": "0",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{job_name(number)}-node-0-{index}",
                "namespace": NAMESPACE,
                "labels": labels,
                "ownerReferences": [job],
            },
            "spec": {"restartPolicy": "Never", "containers": [container]},
            "status": {"phase": "Pending", "conditions": [unschedulable]},
        }


def completed() -> JsonObject:
    """Build the patch with which a JobSet controller reports success."""
    condition = {
        "type": "Completed",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "all jobs completed",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    counts = _counts(succeeded=1)
    return {"status": {"replicatedJobsStatus": [counts], "conditions": [condition], "terminalState": "Completed"}}


def _counts(**counts: int) -> JsonObject:
    zero = dict.fromkeys(("active", "failed", "ready", "succeeded", "suspended"), 0)
    return {"name": "node", **zero, **counts}
