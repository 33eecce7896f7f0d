"""What a TrainJob may ask of the ReplicatedJobs of its runtime: the checks of the JobSet plugin.

- B4: what a runtime patch names is looked for in the runtime as it was before any patch.
- B17: data that goes to a cache needs no volume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from trainmaster.runtime.api import InitializerSource, TrainJob
from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    DATASET_INITIALIZER,
    INITIALIZER_VOLUME,
    JOBSET_API_VERSION,
    JOBSET_KIND,
    MAIN_CONTAINER_OF_ANCESTOR,
    MODEL_INITIALIZER,
)
from trainmaster.runtime.extension import FieldError
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.validation.runtime_patches import patches_changed
from trainmaster.runtime.validation.suggestions import did_you_mean

_CACHE_SCHEME: Final = "cache://"
_MAIN_CONTAINERS: Final = frozenset(MAIN_CONTAINER_OF_ANCESTOR.values())


def check_initializers(info: Info, job: TrainJob) -> Iterator[FieldError]:
    """Check that the runtime can fetch what the TrainJob wants to have fetched."""
    initializer = job.spec.initializer
    if initializer is None:
        return
    reference = job.spec.runtime_ref
    value = {"name": reference.name, "apiGroup": reference.api_group, "kind": reference.kind}
    for step, source, section in (
        (DATASET_INITIALIZER, initializer.dataset, "datasetConfig"),
        (MODEL_INITIALIZER, initializer.model, "modelConfig"),
    ):
        problem = _missing(info, step, source, section) if source is not None else None
        if problem is not None:
            yield FieldError("spec.runtimeRef", problem, value=value)


def _missing(info: Info, step: str, source: InitializerSource, section: str) -> str | None:
    labelled = next(info.with_ancestor(step), None)
    pods = labelled or info.pod_set(step)
    if pods is None:
        return f"must have {step} job when trainJob is configured with input {section}"
    container = pods.container(step)
    if container is None:
        return f"must have container with name - {step} in the {step} job"
    mounted = [mount.get("name") for mount in container.get("volumeMounts") or []]
    if INITIALIZER_VOLUME not in mounted and not (source.storage_uri or "").startswith(_CACHE_SCHEME):
        return f"must have volumeMount with name - {INITIALIZER_VOLUME} in container {step} of the {step} job"
    if labelled is None:
        # Only the label makes it a step; without it nothing of the TrainJob's would reach it.
        return f"must have the label {ANCESTOR_LABEL}: {step} on the job template of the {step} job"
    return None


def check_patch_targets(info: Info, job: TrainJob) -> Iterator[FieldError]:
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
            if any(each["name"] in _MAIN_CONTAINERS and each.get("env") for each in pods.get("containers") or []):
                message = f"must not have envs for the {DATASET_INITIALIZER}, {MODEL_INITIALIZER}, node containers"
                yield FieldError("spec.runtimePatches", message, value=all_patches)


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


def check_inactive(job: TrainJob, old: TrainJob | None, listers: Listers) -> Iterator[FieldError]:
    """Check that runtime patches change only when none of the pods runs any more."""
    if old is None or not (job.spec.suspend or old.spec.suspend) or not patches_changed(job, old):
        return
    jobset = listers.get(JOBSET_API_VERSION, JOBSET_KIND, job.metadata.namespace, job.metadata.name) or {}
    for status in (jobset.get("status") or {}).get("replicatedJobsStatus") or []:
        if status.get("active", 0) > 0:
            message = (
                f"RuntimePatches cannot be modified when the JobSet's ReplicatedJob {status['name']} is still active"
            )
            yield FieldError("spec.runtimePatches", message, reason="Forbidden")
