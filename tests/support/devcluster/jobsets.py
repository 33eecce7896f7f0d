"""JobSets on a cluster that is driven step by step: what is made of them, and what became of it."""

from __future__ import annotations

from typing import Any

from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import JOBS, JOBSETS, PODS
from trainmaster.devcluster.controllers.control_loop import NO_BACKOFF
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector
from trainmaster.devcluster.controllers.job.controller import JobController
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.runtime.jsontree import JsonObject


def start(cluster: Stepper, *, elastic: bool = False) -> None:
    """Start the controllers of JobSets and Jobs."""
    cluster.start(
        GarbageCollector(cluster.api),
        JobController(cluster.api, pod_backoff=NO_BACKOFF),
        JobSetController(cluster.api, elastic=elastic),
    )


def replicated(name: str = "node", *, replicas: int = 1, pods: int = 1, **more: Any) -> JsonObject:
    """Return a replicated Job."""
    pod: JsonObject = {"containers": [{"name": "main", "image": "img", "command": ["true"]}]}
    job = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": pod}}
    return {"name": name, "replicas": replicas, "template": {"spec": job}, **more}


def manifest(*replicated_jobs: JsonObject, **spec: Any) -> JsonObject:
    """Return a JobSet."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {"replicatedJobs": list(replicated_jobs) or [replicated()], **spec},
    }


async def create(cluster: Stepper, *replicated_jobs: JsonObject, **spec: Any) -> None:
    """Create a JobSet and let everything happen that follows."""
    await cluster.api.create(JOBSETS, manifest(*replicated_jobs, **spec), namespace="default")
    await cluster.settle()


async def change(cluster: Stepper, **spec: Any) -> None:
    """Change fields of its spec."""
    jobset = get(cluster)
    await cluster.api.update(JOBSETS, {**jobset, "spec": {**jobset["spec"], **spec}})
    await cluster.settle()


def get(cluster: Stepper) -> JsonObject:
    """Return the JobSet."""
    return cluster.api.get(JOBSETS, "default", "js")


def status(cluster: Stepper) -> JsonObject:
    """Return its status."""
    found: JsonObject = get(cluster)["status"]
    return found


def counts(cluster: Stepper) -> dict[str, JsonObject]:
    """Return what is not zero of the counts of its replicated Jobs."""
    return {
        each["name"]: {key: value for key, value in each.items() if key != "name" and value}
        for each in status(cluster)["replicatedJobsStatus"]
    }


def conditions(cluster: Stepper) -> dict[str, tuple[str, str]]:
    """Return status and reason of its conditions."""
    return {each["type"]: (each["status"], each["reason"]) for each in status(cluster).get("conditions", [])}


def message(cluster: Stepper, kind: str) -> str:
    """Return the message of a condition."""
    found: str = next(each["message"] for each in status(cluster)["conditions"] if each["type"] == kind)
    return found


def jobs(cluster: Stepper) -> list[str]:
    """Return the names of all Jobs."""
    return [job["metadata"]["name"] for job in cluster.objects(JOBS)]


async def finish(cluster: Stepper, job: str, phase: str = "Succeeded") -> None:
    """End the pods of a Job."""
    for pod in cluster.objects(PODS):
        ended = pod["status"]["phase"] in {"Succeeded", "Failed"}
        if pod["metadata"]["labels"]["job-name"] == job and not ended:
            await cluster.set_pod(pod, phase)
