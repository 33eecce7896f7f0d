"""Jobs that run as processes, for end-to-end tests: those of kubeflow.org/v1, and TrainJobs of a shell script."""

from pathlib import Path
from typing import Any

import yaml
from support.training import conditions_of, log_of, until
from support.training import runtime as cluster_runtime
from support.training import trainjob as made

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.runtime.jsontree import JsonObject

TIMEOUT = 200.0
"""Seconds, which only end tests that hang anyway: frameworks of some hundred MB take long to load."""


def jobs(kind: str) -> Resource:
    return Resource("kubeflow.org", "v1", kind, f"{kind.lower()}s", namespaced=True)


def job(kind: str, name: str, replicas: JsonObject, **spec: Any) -> JsonObject:
    """A job in the namespace default, of which each type of replicas has a number and a command, or none."""
    prefix, container = {
        "PyTorchJob": ("pytorch", "pytorch"),
        "TFJob": ("tf", "tensorflow"),
        "XGBoostJob": ("xgb", "xgboost"),
        "MPIJob": ("mpi", "mpi"),
        "PaddleJob": ("paddle", "paddle"),
    }[kind]
    specs = {
        each: {
            "replicas": number,
            "restartPolicy": "Never",
            "template": {
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": container, "image": "none", **({"command": command} if command else {})}],
                }
            },
        }
        for each, (number, command) in replicas.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {f"{prefix}ReplicaSpecs": specs, **spec},
    }


async def succeeded(client: KubeClient, kind: str, name: str) -> None:
    """Wait for the end of a job, which is to be success."""

    async def final() -> JsonObject | None:
        held = conditions_of(await client.get(jobs(kind), "default", name))
        return held.get("Succeeded") or held.get("Failed")

    condition: JsonObject = await until(final, timeout=TIMEOUT)
    assert condition["type"] == "Succeeded", (condition, await logs(client, name))


async def logs(client: KubeClient, name: str) -> dict[str, str]:
    """What the pods of a job have printed, by the name of the pod without that of the job."""
    found = (await client.list(PODS, "default", label_selector=f"training.kubeflow.org/job-name={name}"))["items"]
    names = [pod["metadata"]["name"] for pod in found]
    return {pod.removeprefix(f"{name}-"): await log_of(client, pod) for pod in names}


async def all_ended(client: KubeClient, name: str) -> None:
    """Wait until no pod of a job runs: a job may have succeeded before."""

    async def ended() -> bool:
        found = (await client.list(PODS, "default", label_selector=f"training.kubeflow.org/job-name={name}"))["items"]
        return all(pod["status"].get("phase") in {"Succeeded", "Failed"} for pod in found)

    await until(ended)


def runtime(name: str, *, nodes: int = 1, **options: Any) -> JsonObject:
    obj = cluster_runtime(name, **options)
    obj |= {"kind": "TrainingRuntime", "metadata": {"name": name}}
    obj["spec"]["mlPolicy"] = {"numNodes": nodes}
    return obj


def trainjob(name: str, script: str, *, runtime: str = "shell", **spec: Any) -> JsonObject:
    reference = {"name": runtime, "kind": "TrainingRuntime"}
    job = made(name, runtimeRef=reference, trainer={"command": ["sh", "-c", script]}, **spec)
    del job["metadata"]["namespace"]
    return job


def write(directory: Path, *objects: JsonObject) -> str:
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path.name
