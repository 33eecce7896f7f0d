"""Trains with a plain Indexed Job in place of a JobSet, for clusters that have none.

It serves TrainJobs whose runtime says so, by an annotation of its template, or with `always` in its options all of
them. Names of Job, pods and Service are those that a JobSet gives, so whatever the frameworks tell the nodes of each
other holds. A Job is one group of pods: runtimes with several ReplicatedJobs need a JobSet.

Suspension, deadline, time to live and deletion need no line here: the controller does what has to be done to whatever
is declared as a workload.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, Field

from trainmaster.runtime.sdk import (
    COMPLETE,
    FAILED,
    NODE,
    TRAINER_ANCESTOR,
    ApplyWhen,
    Desired,
    Endpoints,
    FieldError,
    Info,
    JsonObject,
    Listers,
    PodSet,
    Rejected,
    StatusReport,
    TrainJob,
    Watch,
    dns_label,
    upsert_env,
)

WORKLOAD = "indexed-job.example/workload"
"""The annotation of a runtime's template: `Job` asks for this plugin, `JobSet` declines it."""

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_NAME = "jobset.sigs.k8s.io/replicatedjob-name"
"""Labels by which the SDK of Kubeflow and `trainmaster run` find the pods of a TrainJob."""

_LIFETIME = "ttlSecondsAfterFinished"  # of a JobSet, and of a Job


class IndexedJobOptions(BaseModel):
    """What the configuration file of the controller may say, at plugins.options.indexed-job."""

    always: bool = Field(default=False, description="Serve all TrainJobs whose runtime does not ask for a JobSet.")


class IndexedJob:
    """Builds the Job of a TrainJob and reports its state."""

    name = "indexed-job"
    api_version = "1.0"
    maturity = "beta"
    priority = -1000
    """As the plugin that it replaces: pods are built when all others have had their say."""

    replaces = ("jobset",)
    options_model = IndexedJobOptions

    def __init__(self, options: IndexedJobOptions) -> None:
        self.options = options

    def applies_to(self, info: Info) -> bool:
        """Tell whether the runtime asks for a Job, rather than for a JobSet."""
        return info.annotations.get(WORKLOAD, "Job" if self.options.always else "JobSet") == "Job"

    def watch_extension(self) -> Iterator[Watch]:
        """Jobs are the workload; their pods find each other by a Service."""
        yield Watch("batch/v1", "Job", "jobs", writes=True, workload=True)
        yield Watch("v1", "Service", "services", writes=True)

    def validate(self, info: Info, job: TrainJob) -> Iterator[FieldError]:
        """Check that one Job can do what the runtime and the TrainJob want."""
        try:
            pods = _only(info)
        except Rejected as error:
            yield FieldError("spec.runtimeRef", str(error), value=job.spec.runtime_ref.with_defaults())
            return
        if job.spec.initializer:
            yield FieldError("spec.initializer", "needs a runtime with a JobSet: a Job has no step before", "Forbidden")
        for problem in dns_label(f"{_job_name(job, pods)}-{max(pods.size - 1, 0)}"):
            yield FieldError("metadata.name", f"makes host names of pods that cannot be: {problem}")

    def pre_build(self, info: Info, job: TrainJob) -> None:
        """Write the count into the Job, and list the host names of all pods."""
        pods = _only(info)
        pods.job_template["spec"] |= {"parallelism": pods.count, "completions": pods.count}
        subdomain = info.subdomain(job.metadata.name)
        pods.endpoints = Endpoints(f"{job.metadata.name}-{pods.name}", subdomain, jobs=1, pods=pods.count)

    def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
        """Return the Service and the Job; a running Job is left alone, since most of it is immutable."""
        pods, subdomain = _only(info), info.subdomain(job.metadata.name)
        if pods.ancestor == TRAINER_ANCESTOR:
            _apply_trainer(info, pods, job)
        labels = {JOBSET_NAME: job.metadata.name, REPLICATED_JOB_NAME: pods.name}
        pods.pod_template.setdefault("metadata", {}).setdefault("labels", {}).update(labels)
        pods.pod_spec["subdomain"] = subdomain
        pods.pod_spec.setdefault("restartPolicy", "OnFailure")
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels}
        yield Desired({"apiVersion": "v1", "kind": "Service", "metadata": {"name": subdomain}, "spec": service})
        metadata = {"name": _job_name(job, pods), "labels": {**info.labels, **labels}, "annotations": info.annotations}
        spec = {**pods.job_template["spec"], "completionMode": "Indexed", "suspend": job.spec.suspend}
        if _LIFETIME in info.template:
            spec[_LIFETIME] = info.template[_LIFETIME]
        workload = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        yield Desired(workload, ApplyWhen.SUSPENDED)

    def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
        """Translate the state of the Job; None if the TrainJob has none."""
        workload = next((each for each in listers.workloads(job) if each["kind"] == "Job"), None)
        if workload is None:
            return None
        status: JsonObject = workload.get("status") or {}
        reported: list[JsonObject] = status.get("conditions") or []
        ended = {each["type"]: each for each in reported if each.get("status") == "True"}
        conditions = [
            {
                "type": type_,
                "status": "True",
                "reason": ended[type_].get("reason") or f"Job{type_}",
                "message": ended[type_].get("message") or f"Job {workload['metadata']['name']}: {type_}",
            }
            for type_ in (COMPLETE, FAILED)
            if type_ in ended
        ]
        done = status.get("ready", 0) + status.get("succeeded", 0)
        counts = {
            "ready": done >= workload["spec"]["parallelism"],
            "succeeded": COMPLETE in ended,
            "failed": FAILED in ended,
            "active": status.get("active", 0) > 0,
            "suspended": bool(workload["spec"].get("suspend")),
        }
        name = workload["metadata"]["labels"][REPLICATED_JOB_NAME]
        return StatusReport(conditions, [{"name": name, **{state: int(holds) for state, holds in counts.items()}}])


def _only(info: Info) -> PodSet:
    """Return the pods of a runtime that has one Job of them.

    Raises:
        Rejected: It has several.
    """
    if len(info.pod_sets) != 1 or info.pod_sets[0].replicas != 1:
        raise Rejected(
            f"the runtime consists of {sum(pods.replicas for pods in info.pod_sets)} Jobs, but the plugin indexed-job "
            f"makes one; use a runtime with one Job, or one with the annotation {WORKLOAD}: JobSet"
        )
    return info.pod_sets[0]


def _job_name(job: TrainJob, pods: PodSet) -> str:
    """The name that a JobSet would give its first Job: nodes expect each other under it."""
    return f"{job.metadata.name}-{pods.name}-0"


def _apply_trainer(info: Info, pods: PodSet, job: TrainJob) -> None:
    """Lay over the runtime's container what the TrainJob says; its resources are there already."""
    container, trainer = pods.container(NODE), job.spec.trainer
    if container is None:
        return
    command = info.trainer_command or (trainer.command if trainer else None)
    given: JsonObject = {
        "image": trainer.image if trainer else None,
        "command": command,
        "args": trainer.args if trainer else None,
    }
    container.update({field: value for field, value in given.items() if value})
    upsert_env(container, trainer.env if trainer else [])
