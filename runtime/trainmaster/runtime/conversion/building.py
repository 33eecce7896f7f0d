"""The objects that a V1 job becomes: the TrainingRuntime with its pods, and the TrainJob."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    API_VERSION,
    FRAMEWORK_LABEL,
    GROUP,
    TRAINER_ANCESTOR,
    TRAINING_RUNTIME_KIND,
    TRAINJOB_KIND,
)
from trainmaster.runtime.conversion.hosts import JOBSET_NAME, JOBSET_NAME_FIELD_PATH
from trainmaster.runtime.conversion.job import TRAINER_FIELDS, JobConversion
from trainmaster.runtime.conversion.notes import ConversionError
from trainmaster.runtime.conversion.pod_template import convert_template, users_variables
from trainmaster.runtime.conversion.replicas import Group, job_spec, tell_restarts
from trainmaster.runtime.conversion.run_policy import set_gang
from trainmaster.runtime.jobs.constants import NEVER
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.podspec import env_field

_LONGEST_IMAGE: Final = 500
_MOST_ITEMS: Final = 128
"""What the definition of TrainJobs allows; what is longer stays in the runtime."""

_LONGEST_NAME: Final = 63
_POD_SUFFIX: Final = 6
"""Characters that a Job adds to the names of its pods."""


def build(job: JobConversion) -> list[JsonObject]:
    """Return the runtime and the TrainJob of a job.

    Raises:
        ConversionError: Its name is too long for a TrainJob.
    """
    _check_name(job)
    trainer: JsonObject = {}
    replicated_jobs = [_replicated_job(job, group, trainer) for group in job.groups]
    name = job.metadata.get("name") or job.metadata["generateName"].rstrip("-.")
    return [_runtime(job, name, replicated_jobs, trainer), _trainjob(job, name, trainer)]


def _leader(job: JobConversion) -> Group:
    """Return the nodes of the trainer: all pods of most jobs, the pods that lead of the others."""
    return next((each for each in job.groups if each.is_trainer), None) or next(
        each for each in job.groups if each.is_node
    )


def _check_name(job: JobConversion) -> None:
    longest = max((host.partition(".")[0] for host in job.hosts.values()), key=len)
    too_many = len(longest) + _POD_SUFFIX - _LONGEST_NAME
    if job.name and too_many > 0:
        raise ConversionError(
            "metadata.name",
            f"is too long: a pod of the TrainJob is called {longest}-abcde, for which there are {_LONGEST_NAME} "
            f"characters; shorten the name by {too_many}",
        )


def _runtime(job: JobConversion, name: str, replicated_jobs: list[JsonObject], trainer: JsonObject) -> JsonObject:
    spec: JsonObject = {"replicatedJobs": replicated_jobs}
    successful = list(job.successful())
    if successful != [group.name for group in job.groups]:
        spec = {"successPolicy": {"operator": "All", "targetReplicatedJobs": successful}, **spec}
    nodes = trainer.get("numNodes", _leader(job).count)
    runtime: JsonObject = {"mlPolicy": {"numNodes": nodes, **job.ml_policy()}, "template": {"spec": spec}}
    pod_specs = [each["template"]["spec"]["template"]["spec"] for each in replicated_jobs]
    scheduling = job.run_policy.scheduling
    set_gang(runtime, pod_specs, scheduling, scheduler=job.gang_scheduler, pods=job.total, notes=job.notes)
    metadata = {"name": name, "labels": {FRAMEWORK_LABEL: job.framework}}
    if "namespace" in job.metadata:
        metadata["namespace"] = job.metadata["namespace"]
    return {"apiVersion": API_VERSION, "kind": TRAINING_RUNTIME_KIND, "metadata": metadata, "spec": runtime}


def _trainjob(job: JobConversion, name: str, trainer: JsonObject) -> JsonObject:
    spec: JsonObject = {"runtimeRef": {"apiGroup": GROUP, "kind": TRAINING_RUNTIME_KIND, "name": name}}
    if trainer:
        order = ("numNodes", "numProcPerNode", *TRAINER_FIELDS.values())
        spec["trainer"] = {field: trainer[field] for field in order if trainer.get(field)}
    spec |= job.run_policy.trainjob
    return {"apiVersion": API_VERSION, "kind": TRAINJOB_KIND, "metadata": job.metadata, "spec": spec}


def _replicated_job(job: JobConversion, group: Group, trainer: JsonObject) -> JsonObject:
    """Return the ReplicatedJob of a group; what the TrainJob says of it goes into `trainer`."""
    template = convert_template(group, job=job.name, hosts=job.hosts, notes=job.notes)
    path = f"{group.replicas.path}.template.spec"
    job.complete(group, template["spec"], path)
    for place, container in enumerate(template["spec"]["containers"]):
        is_main = place == group.main
        env = _named(job, job.environment(group)) if is_main or not job.sets_main_only else []
        of_trainer = trainer if is_main and group.is_trainer else None
        _set_variables(job, container, env, of_trainer, f"{path}.containers[{place}].env")
    main = template["spec"]["containers"][group.main]
    spec = _job_spec(job, group, main["name"])
    is_leader = group is _leader(job)
    if is_leader:
        _move_to_trainer(main, trainer, job.trainer_fields if group.is_trainer else ("resources",))
    if group.is_trainer:
        trainer["numNodes"] = job.nodes
        if (processes := job.processes()) is not None:
            trainer["numProcPerNode"] = processes
    elif not group.is_spread:
        spec["parallelism"] = spec["completions"] = group.count
    replicated_job: JsonObject = {"name": group.name}
    if group.is_spread:
        replicated_job["replicas"] = group.count
    if depends_on := job.depends_on(group):
        replicated_job["dependsOn"] = depends_on
    metadata = {"metadata": {"labels": {ANCESTOR_LABEL: TRAINER_ANCESTOR}}} if is_leader else {}
    replicated_job["template"] = {**metadata, "spec": {**spec, "template": template}}
    return replicated_job


def _job_spec(job: JobConversion, group: Group, container: str) -> JsonObject:
    """Return the fields of the Jobs of a group that say when they start again and when they have ended."""
    limit = job.run_policy.backoff_limit
    for replicas, _ in group.members:
        tell_restarts(replicas.restart_policy, limit, f"{replicas.path}.restartPolicy", job.notes)
    if len(job.groups) > 1 and limit is not None and group.replicas.restart_policy != NEVER:
        job.notes.tell("spec.runPolicy.backoffLimit", "counts for each Job of the JobSet by itself")
    spec = job_spec(group.replicas.restart_policy, limit, container)
    if (success := job.job_success(group)) is not None:
        spec["successPolicy"] = success
    return spec


def _named(job: JobConversion, env: Iterable[JsonObject]) -> list[JsonObject]:
    """Put the name of the job before variables that hold it, if it is generated."""
    return list(env) if job.name else [env_field(JOBSET_NAME, JOBSET_NAME_FIELD_PATH), *env]


def _set_variables(
    job: JobConversion, container: JsonObject, env: Sequence[JsonObject], trainer: JsonObject | None, path: str
) -> None:
    """Give a container the variables that V1 set, and the user's: these through the TrainJob, if it is its trainer."""
    names = {each["name"] for each in env} | (job.reserved() if trainer is not None else frozenset())
    users = users_variables(container.pop("env", None) or [], names, path, job.notes)
    own = [copy_tree(each) for each in env]
    if trainer is not None and "env" in job.trainer_fields and len(users) <= _MOST_ITEMS:
        trainer["env"] = users
    else:
        own += users
    if own:
        container["env"] = own


def _move_to_trainer(container: JsonObject, trainer: JsonObject, fields: Collection[str]) -> None:
    """Let the TrainJob say what it can say about the container that trains, beside its variables.

    The runtime names the image, too: the Kubeflow SDK reads it there.
    """
    for field, theirs in TRAINER_FIELDS.items():
        value = container.get(field)
        if field != "env" and field in fields and value and _fits(field, value):
            trainer[theirs] = value
            if field != "image":
                del container[field]


def _fits(field: str, value: Any) -> bool:
    if field == "resources":
        return set(value) <= {"limits", "requests"}
    return len(value) <= (_LONGEST_IMAGE if field == "image" else _MOST_ITEMS)
