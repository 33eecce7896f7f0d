"""JobSet: the workload that a TrainJob becomes, and what it says about itself.

- Last of the build phase, so that the objects that pods mount exist before the pods do.
- B4: what a runtime patch names is looked for in the runtime as it was before any patch.
- B17: data that goes to a cache needs no volume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    ANCESTORS,
    COMPLETE,
    DATASET_INITIALIZER,
    FAILED,
    INITIALIZER_VOLUME,
    JOBSET_API_VERSION,
    JOBSET_COMPLETED,
    JOBSET_FAILED,
    JOBSET_KIND,
    MAIN_CONTAINER_OF_ANCESTOR,
    MODEL_INITIALIZER,
    NODE,
    STORAGE_URI_ENV,
    TRAINER_ANCESTOR,
)
from trainmaster.runtime.api.trainjob import Initializer, InitializerSource, Trainer, TrainJob
from trainmaster.runtime.canonical import spelled_out
from trainmaster.runtime.field_errors import FieldError, FieldWarning, did_you_mean
from trainmaster.runtime.framework.interface import ApplyWhen, Desired, StatusReport
from trainmaster.runtime.info import Endpoints, Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.podspec import env_value, upsert_env
from trainmaster.runtime.validation.trainjob import patches_changed

_CONDITION_OF = {JOBSET_COMPLETED: COMPLETE, JOBSET_FAILED: FAILED}
_CONDITION_FIELDS = ("status", "reason", "message", "lastTransitionTime", "observedGeneration")
_JOB_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")

_CACHE_SCHEME: Final = "cache://"
_WORKSPACE: Final = "/workspace"
"""Where the initializers of Kubeflow write, and what they fetched is read."""

_MAIN_CONTAINERS: Final = frozenset(MAIN_CONTAINER_OF_ANCESTOR.values())


class JobSet:
    """Builds the JobSet of a TrainJob and reports its state."""

    name = "jobset"
    priority = -1000

    def watch_extension(self) -> Iterable[Watch]:
        """The JobSets that TrainJobs own."""
        return [Watch(JOBSET_API_VERSION, JOBSET_KIND, "jobsets", writes=True, workload=True)]

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Check what the TrainJob asks of the ReplicatedJobs of its runtime."""
        yield from _check_initializers(info, job)
        yield from _check_patch_targets(info, job)
        yield from _check_inactive(job, old, listers)

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

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:
        """Return the JobSet; a running one is left alone, since most of it is immutable."""
        for pods in info.pod_sets:
            if job.spec.initializer:
                _apply_initializer(pods, job.spec.initializer)
            if job.spec.trainer:
                _apply_trainer(info, pods, job.spec.trainer)
        pod_sets = {pods.name: pods for pods in reversed(info.pod_sets)}
        for replicated_job in info.template.get("replicatedJobs") or []:
            pods_of = pod_sets.get(replicated_job["name"])
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


def _check_initializers(info: Info, job: TrainJob) -> Iterator[FieldError | FieldWarning]:
    """Check that the runtime can fetch what the TrainJob wants to have fetched."""
    initializer = job.spec.initializer
    if initializer is None:
        return
    for step, source, field, section in (
        (DATASET_INITIALIZER, initializer.dataset, "dataset", "datasetConfig"),
        (MODEL_INITIALIZER, initializer.model, "model", "modelConfig"),
    ):
        if source is None:
            continue
        problem = _missing(info, step, source, section)
        if problem is not None:
            yield FieldError("spec.runtimeRef", problem, value=job.spec.runtime_ref.with_defaults())
        elif next(info.with_ancestor(step), None) is None:
            detail = (
                f"is not used: only the label {ANCESTOR_LABEL}: {step} on the Job template makes the {step} job of the "
                "runtime the one that gets these settings, and it has no such label; it runs as the runtime says"
            )
            yield FieldWarning(f"spec.initializer.{field}", detail)


def _missing(info: Info, step: str, source: InitializerSource, section: str) -> str | None:
    pods = next(info.with_ancestor(step), None) or info.pod_set(step)
    if pods is None:
        return f"must have {step} job when trainJob is configured with input {section}"
    container = pods.container(step)
    if container is None:
        return f"must have container with name - {step} in the {step} job"
    mounted = [mount.get("name") for mount in container.get("volumeMounts") or []]
    if INITIALIZER_VOLUME not in mounted and not (source.storage_uri or "").startswith(_CACHE_SCHEME):
        return (
            f"must have volumeMount with name - {INITIALIZER_VOLUME} in container {step} of the {step} job; give the "
            f'pods of {step} and of node the same volume "{INITIALIZER_VOLUME}", mounted at {_WORKSPACE} in both'
        )
    return None


def _check_patch_targets(info: Info, job: TrainJob) -> Iterator[FieldError | FieldWarning]:
    """Check that runtime patches name what the runtime has, and leave alone what has a place of its own."""
    jobs = {
        replicated_job["name"]: replicated_job for replicated_job in info.runtime_template.get("replicatedJobs") or []
    }
    all_patches = [patch.to_json() for patch in job.spec.runtime_patches]
    for position, patch in enumerate(job.spec.runtime_patches):
        spec = ((patch.training_runtime_spec or {}).get("template") or {}).get("spec") or {}
        path = f"spec.runtimePatches[{position}].trainingRuntimeSpec.template.spec.replicatedJobs"
        for number, patched in enumerate(spec.get("replicatedJobs") or []):
            target = jobs.get(patched["name"])
            if target is None:
                problem = "must not have replicated job that doesn't exist in the runtime job template"
                yield _unknown(f"{path}[{number}].name", problem, patched["name"], jobs)
                continue
            below = f"{path}[{number}].template.spec.template.spec"
            pods, runtime_pods = _pod_spec(patched), _pod_spec(target)
            yield from _check_containers("initContainer", pods, runtime_pods, patched["name"], below)
            yield from _check_containers("container", pods, runtime_pods, patched["name"], below)
            yield from _lost_tolerations(pods, runtime_pods, f"{below}.tolerations")
            if any(each["name"] in _MAIN_CONTAINERS and each.get("env") for each in pods.get("containers") or []):
                detail = f"must not have envs for the {DATASET_INITIALIZER}, {MODEL_INITIALIZER}, node containers"
                yield FieldError("spec.runtimePatches", detail, value=all_patches)


def _lost_tolerations(pods: JsonObject, runtime_pods: JsonObject, path: str) -> Iterator[FieldWarning]:
    """Warn of tolerations of the runtime that a patch takes away, as one for the flavor of a queue may."""
    patched = pods.get("tolerations")
    lost = [each for each in runtime_pods.get("tolerations") or () if patched and each not in patched]
    if lost:
        detail = (
            f"take the place of those of the runtime, so that its pods lose {', '.join(map(_toleration, lost))}; "
            "repeat here what they need"
        )
        yield FieldWarning(path, detail)


def _toleration(toleration: JsonObject) -> str:
    """Write a toleration as `kubectl taint` writes the taint."""
    value = f"={toleration['value']}" if toleration.get("value") else ""
    return f"{toleration.get('key', 'any key')}{value}:{toleration.get('effect', 'any effect')}"


def _check_containers(
    what: str, pods: JsonObject, runtime_pods: JsonObject, replicated_job: str, path: str
) -> Iterator[FieldError]:
    field = f"{what}s"
    known = [container["name"] for container in runtime_pods.get(field) or []]
    for position, container in enumerate(pods.get(field) or []):
        if container["name"] not in known:
            problem = f"must not have {what} that doesn't exist in the runtime job {replicated_job}"
            yield _unknown(f"{path}.{field}[{position}].name", problem, container["name"], known)


def _unknown(path: str, problem: str, name: str, known: Iterable[str]) -> FieldError:
    return FieldError(path, f"{problem} {did_you_mean(name, known)}", value=name)


def _pod_spec(replicated_job: JsonObject) -> JsonObject:
    job_spec = (replicated_job.get("template") or {}).get("spec") or {}
    pod_spec: JsonObject = (job_spec.get("template") or {}).get("spec") or {}
    return pod_spec


def _check_inactive(job: TrainJob, old: TrainJob | None, listers: Listers) -> Iterator[FieldError]:
    """Check that runtime patches change only when none of the pods runs any more."""
    if old is None or not (job.spec.suspend or old.spec.suspend) or not patches_changed(job, old):
        return
    jobset = listers.get(JOBSET_API_VERSION, JOBSET_KIND, job.metadata.namespace, job.metadata.name) or {}
    for status in (jobset.get("status") or {}).get("replicatedJobsStatus") or []:
        if status.get("active", 0) > 0:
            detail = (
                f"RuntimePatches cannot be modified when the JobSet's ReplicatedJob {status['name']} is still active"
            )
            yield FieldError("spec.runtimePatches", detail, type="Forbidden")
