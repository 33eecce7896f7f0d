"""JobSet: the workload that a TrainJob becomes, and what it says about itself.

Last of the build phase, so that the objects that pods mount exist before the pods do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.plugins.jobsetchecks import check_inactive, check_initializers, check_patch_targets
from trainmaster.runtime.api import Initializer, InitializerSource, Trainer, TrainJob
from trainmaster.runtime.api.constants import (
    ANCESTORS,
    COMPLETE,
    DATASET_INITIALIZER,
    FAILED,
    JOBSET_API_VERSION,
    JOBSET_COMPLETED,
    JOBSET_FAILED,
    JOBSET_KIND,
    MODEL_INITIALIZER,
    NODE,
    STORAGE_URI_ENV,
    TRAINER_ANCESTOR,
)
from trainmaster.runtime.canonical import spelled_out
from trainmaster.runtime.extension import ApplyWhen, Desired, FieldError, StatusReport
from trainmaster.runtime.info import Endpoints, Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.podspec import env_value, upsert_env

_CONDITION_OF = {JOBSET_COMPLETED: COMPLETE, JOBSET_FAILED: FAILED}
_CONDITION_FIELDS = ("status", "reason", "message", "lastTransitionTime", "observedGeneration")
_JOB_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")


class JobSet:
    """Builds the JobSet of a TrainJob and reports its state."""

    name = "JobSet"
    priority = -1000

    def watch_extension(self) -> Iterable[Watch]:
        """The JobSets that TrainJobs own."""
        return [Watch(JOBSET_API_VERSION, JOBSET_KIND, "jobsets", writes=True)]

    def validate(self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers) -> Iterator[FieldError]:
        """Check what the TrainJob asks of the ReplicatedJobs of its runtime."""
        yield from check_initializers(info, job)
        yield from check_patch_targets(info, job)
        yield from check_inactive(job, old, listers)

    def pre_build(self, info: Info, job: TrainJob) -> None:
        """Write counts into the Job templates and list the host names of all pods."""
        name = job.metadata.name
        subdomain = info.subdomain(name)
        for pods in info.pod_sets:
            job_spec = pods.job_template["spec"]
            if not info.works_through(pods):
                job_spec["completions"] = pods.count
            job_spec["parallelism"] = pods.count
            pods.endpoints = Endpoints(f"{name}-{pods.name}", subdomain, jobs=pods.replicas, pods=pods.count)

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:  # noqa: ARG002 - the interface's
        """Return the JobSet; a running one is left alone, since most of it is immutable."""
        for pods in info.pod_sets:
            if job.spec.initializer:
                _apply_initializer(pods, job.spec.initializer)
            if job.spec.trainer:
                _apply_trainer(info, pods, job.spec.trainer)
        for replicated_job in info.template.get("replicatedJobs") or []:
            pods_of = info.pod_set(replicated_job["name"])
            if pods_of and (pods_of.ancestor in ANCESTORS or "replicas" in replicated_job):
                replicated_job["replicas"] = pods_of.replicas
        metadata: JsonObject = {"name": job.metadata.name}
        if info.labels:
            metadata["labels"] = info.labels
        if info.annotations:
            metadata["annotations"] = info.annotations
        spec = {**info.template, "suspend": job.spec.suspend}
        jobset = {"apiVersion": JOBSET_API_VERSION, "kind": JOBSET_KIND, "metadata": metadata, "spec": spec}
        yield Desired(jobset, ApplyWhen.SUSPENDED)

    def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
        """Translate the state of the JobSet."""
        jobset = listers.get(JOBSET_API_VERSION, JOBSET_KIND, job.metadata.namespace, job.metadata.name)
        # One of an earlier TrainJob of the same name, or of somebody else, says nothing about this job.
        if jobset is None or not is_controlled_by(jobset, job):
            return None
        status = jobset.get("status") or {}
        conditions = [
            {"type": _CONDITION_OF[condition["type"]], **_copied(condition)}
            for condition in status.get("conditions") or []
            if condition.get("type") in _CONDITION_OF and condition.get("status") == "True"
        ]
        jobs = [
            {"name": entry["name"], **{count: entry.get(count) or 0 for count in _JOB_COUNTS}}
            for entry in status.get("replicatedJobsStatus") or []
        ]
        return StatusReport(conditions=conditions, jobs_status=jobs)


def _copied(condition: JsonObject) -> JsonObject:
    copied = {field: condition[field] for field in _CONDITION_FIELDS if condition.get(field)}
    # The schema of TrainJobs demands both; without them the end of the job could never be written down.
    return {"reason": condition["type"], "message": "", **copied}


def _apply_initializer(pods: PodSet, initializer: Initializer) -> None:
    source = {DATASET_INITIALIZER: initializer.dataset, MODEL_INITIALIZER: initializer.model}.get(pods.ancestor or "")
    # The name of the container is that of the step.
    container = pods.container(pods.ancestor) if source and pods.ancestor else None
    if source is not None and container is not None:
        _apply_source(container, source)


def _apply_source(container: JsonObject, source: InitializerSource) -> None:
    if source.storage_uri is not None:
        upsert_env(container, [env_value(STORAGE_URI_ENV, source.storage_uri)])
    upsert_env(container, spelled_out(source.env))
    if source.secret_ref is not None:
        container.setdefault("envFrom", []).append({"secretRef": dict(source.secret_ref)})


def _apply_trainer(info: Info, pods: PodSet, trainer: Trainer) -> None:
    container = pods.container(NODE)
    if container is None:
        return
    mpi = info.ml_policy.mpi if info.ml_policy else None
    if pods.ancestor == TRAINER_ANCESTOR:
        if trainer.image is not None:
            container["image"] = trainer.image
        # An empty list means the same as none: what the runtime says.
        command = (info.trainer_command if pods is info.trainer else None) or trainer.command
        if command:
            container["command"] = list(command)
        if trainer.args:
            container["args"] = list(trainer.args)
    elif not (mpi and mpi.run_launcher_as_node and pods.name == NODE):
        return
    upsert_env(container, spelled_out(trainer.env))
