"""What can be wrong with the JobSet of a runtime: a ReplicatedJob, and where its fault is below `replicatedJobs`."""

from typing import Any

from support.objects import replicated_job

from trainmaster.runtime.jsontree import JsonObject

POD = "[0].template.spec.template.spec"


def container(**fields: Any) -> JsonObject:
    return replicated_job(containers=[{"name": "node", "image": "i", **fields}])


def pod(**fields: Any) -> JsonObject:
    job = replicated_job()
    job["template"]["spec"]["template"]["spec"] |= fields
    return job


JOBSET_FAULTS: list[tuple[JsonObject, str]] = [
    (
        container(ports=[{"containerPort": 80}, {"containerPort": 80, "name": "x"}]),
        f"{POD}.containers[0].ports: Duplicate value: (80, 'TCP')",
    ),
    (
        container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        f"{POD}.containers[0].env: Duplicate value: 'A'",
    ),
    (pod(volumes=[{"name": "v"}, {"name": "v"}]), f"{POD}.volumes: Duplicate value: 'v'"),
    (
        replicated_job(containers=[{"name": "node", "image": "i"}, {"name": "node", "image": "i"}]),
        f"{POD}.containers: Duplicate value: 'node'",
    ),
    (
        container(volumeMounts=[{"name": "a", "mountPath": "/x"}, {"name": "b", "mountPath": "/x"}]),
        f"{POD}.containers[0].volumeMounts: Duplicate value: '/x'",
    ),
    (replicated_job(dependsOn=[{"name": "later", "status": "Ready"}]), "[0].dependsOn: must name a ReplicatedJob"),
    (replicated_job("Node"), "[0].name: a lowercase RFC 1123 label"),
]
"""The schema of JobSets, or the webhook of JobSet, refuses the JobSet."""

JOB_FAULTS: list[tuple[JsonObject, str]] = [
    (pod(restartPolicy="Always"), f"{POD}.restartPolicy: must be Never or OnFailure"),
    (container(ports=[{"containerPort": 0}]), f"{POD}.containers[0].ports[0].containerPort: must be between"),
    (container(env=[{"name": "A=B"}]), f"{POD}.containers[0].env[0].name: a valid environment variable name"),
    (
        container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        f"{POD}.containers[0].resources.requests: 2 must be less than or equal to cpu limit of 1",
    ),
    (
        container(resources={"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}),
        f"{POD}.containers[0].resources.requests: 1 must be equal to nvidia.com/gpu limit of 2",
    ),
    (container(resources={"limits": {"gpu": "1"}}), f"{POD}.containers[0].resources.limits[gpu]: must be a standard"),
    (
        container(resources={"limits": {"cpu": "-1"}}),
        f"{POD}.containers[0].resources.limits[cpu]: must be greater than or equal to 0",
    ),
    (pod(nodeSelector={"a b": "c"}), f"{POD}.nodeSelector: 'a b': name part must consist of"),
    (pod(volumes=[{"name": "V", "emptyDir": {}}]), f"{POD}.volumes[0].name: a lowercase RFC 1123 label"),
    (pod(initContainers=[{"name": "node", "image": "i"}]), f"{POD}.initContainers[0].name: Duplicate value: 'node'"),
]
"""The JobSet is taken, and its Jobs are refused."""

GAPS: list[tuple[JsonObject, str]] = [
    (container(image=""), f"{POD}.containers[0].image: Required value"),
    (pod(initContainers=[{"name": "first"}]), f"{POD}.initContainers[0].image: Required value"),
    (
        container(resources={"requests": {"nvidia.com/gpu": "1"}}),
        f"{POD}.containers[0].resources.limits: Limit must be set for non overcommitable resources: nvidia.com/gpu",
    ),
]
"""The Jobs are refused unless somebody adds what is missing."""
