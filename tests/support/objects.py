"""Small objects for tests."""

from typing import Any

from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, TrainingRuntime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.jsontree import JsonObject

SUSPENDED: JsonObject = {
    "type": "Suspended",
    "status": "True",
    "reason": "Suspended",
    "message": "TrainJob is suspended",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
COMPLETE: JsonObject = {
    "type": "Complete",
    "status": "True",
    "reason": "AllJobsCompleted",
    "message": "jobset completed successfully",
    "lastTransitionTime": "2026-01-01T00:05:00Z",
}
"""Conditions of a TrainJob."""


def replicated_job(
    name: str = "node", *, ancestor: str | None = "trainer", containers: list[JsonObject] | None = None, **fields: Any
) -> JsonObject:
    """A ReplicatedJob with one container called node, unless told otherwise."""
    pod = {"containers": containers or [{"name": "node", "image": "train:1"}]}
    template: JsonObject = {"spec": {"template": {"spec": pod}}}
    if ancestor:
        template["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": ancestor}}
    return {"name": name, "template": template, **fields}


def runtime_object(*jobs: JsonObject, policy: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A TrainingRuntime `team/rt`."""
    template = {"spec": {"replicatedJobs": list(jobs) or [replicated_job()], **spec}}
    body: JsonObject = {"template": template}
    if policy is not None:
        body["mlPolicy"] = policy
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "rt", "namespace": "team", "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": body,
    }


def runtime(
    *jobs: JsonObject, policy: JsonObject | None = None, **spec: Any
) -> TrainingRuntime | ClusterTrainingRuntime:
    """The same, parsed."""
    return parse_runtime(runtime_object(*jobs, policy=policy, **spec))


def trainjob_object(
    name: str = "demo", *, uid: str = "uid-1", status: JsonObject | None = None, **spec: Any
) -> JsonObject:
    """A TrainJob in namespace `team` on the runtime `rt`."""
    obj: JsonObject = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid,
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, **spec},
    }
    if status is not None:
        obj["status"] = status
    return obj


def trainjob(name: str = "demo", **spec: Any) -> TrainJob:
    """The same, parsed."""
    return parse_trainjob(trainjob_object(name, **spec))
