"""MPIJobs of one launcher and some workers, by each transport."""

from collections.abc import Sequence
from typing import Any

from support.resolutions import FakeListers, entropy

from trainmaster.plugins.jobs.mpijob import MPIJob, MPIJobOptions
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import JsonObject

KIND = MPIJob()
SSH = MPIJob(MPIJobOptions(transport="ssh"), entropy=entropy)


def replica(*, replicas: int | None = None, **spec: Any) -> JsonObject:
    """Return replicas with the usual container, and other fields of the pods' spec."""
    template = {"spec": {"containers": [{"name": "mpi", "image": "train:1"}], **spec}}
    return {"template": template} if replicas is None else {"replicas": replicas, "template": template}


def mpijob(kind: MPIJob = KIND, *, workers: int | None = 2, launcher: JsonObject | None = None, **spec: Any) -> Job:
    """Return a job; without `workers` it has a launcher only."""
    replicas = {"Launcher": launcher if launcher is not None else replica()}
    if workers is not None:
        replicas["Worker"] = replica(replicas=workers)
    return parsed(kind, {"mpiReplicaSpecs": replicas, **spec})


def parsed(kind: MPIJob, spec: JsonObject) -> Job:
    """Return the job of a spec, defaulted."""
    return parse_job(kind, {"metadata": {"name": "mw", "namespace": "NS", "uid": "u"}, "spec": spec})


def built(job: Job, pods: Sequence[JsonObject] = (), *existing: JsonObject) -> dict[str, JsonObject]:
    """Return what a job builds, by kind."""
    return {obj["kind"]: obj for obj in job.kind.build(job, pods, FakeListers(*existing))}


def worker_pod(index: int, phase: str = "Running", **metadata: Any) -> JsonObject:
    """Return a pod of a worker as it is seen."""
    labels = {"training.kubeflow.org/replica-type": "worker"}
    return {"metadata": {"name": f"mw-worker-{index}", "labels": labels, **metadata}, "status": {"phase": phase}}


def environment(pod: JsonObject, container: int = 0) -> dict[str, str | None]:
    """Return the variables of a container."""
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][container].get("env") or []}


def errors(job: Job) -> list[FieldError]:
    """Return what is wrong with a job."""
    return [each for each in job.kind.validate(job, None) if isinstance(each, FieldError)]
