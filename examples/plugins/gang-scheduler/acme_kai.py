"""Schedules TrainJobs with KAI Scheduler, in its queues.

A runtime asks for it by `podGroupPolicy.custom: {name: kai, config: {queue: research}}`; the label
`kai.scheduler/queue` of a TrainJob names another queue. KAI makes the gangs by itself, of all pods of one JobSet. Where
a ReplicatedJob starts after another one (`dependsOn`), as a trainer after its initializers, each ReplicatedJob is a
gang: all pods together would never be there.

A TrainJob whose queue does not exist waits, and says so. KAI would leave its pods pending without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field

from trainmaster.runtime.sdk import (
    FieldError,
    FieldWarning,
    Info,
    JobKey,
    JsonObject,
    Listers,
    NotReady,
    TrainJob,
    Watch,
    did_you_mean,
)

QUEUE_LABEL = "kai.scheduler/queue"
MIN_MEMBER_ANNOTATION = "kai.scheduler/batch-min-member"
"""Of a JobSet: how many of its ReplicatedJobs start together. KAI sees to `startupPolicyOrder` by itself."""

QUEUE_API = "scheduling.run.ai/v2"
TRAINER_API = "trainer.kubeflow.org/v1alpha1"

BY_QUEUE = "kai-by-queue"
BY_RUNTIME = "kai-by-runtime"


class KAIOptions(BaseModel):
    """What the configuration file of the controller may say, at plugins.options.kai."""

    scheduler_name: str = Field("kai-scheduler", min_length=1, description="Under which name KAI is installed.")


class KAIPolicy(BaseModel):
    """What a runtime may say, at podGroupPolicy.custom.config."""

    model_config = ConfigDict(extra="forbid")

    queue: str = Field(pattern="^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$", description="The queue of its TrainJobs.")


class KAI:
    """Serves `podGroupPolicy.custom` of the name kai."""

    name = "kai"
    api_version = "1.0"
    options_model = KAIOptions
    pod_group_policy_config = KAIPolicy

    def __init__(self, options: KAIOptions) -> None:
        self.options = options

    def watch_extension(self) -> Iterator[Watch]:
        """Queues, and by which TrainJobs and runtimes they are named."""
        yield Watch(QUEUE_API, "Queue", "queues", namespaced=False, jobs=jobs_of_queue)
        indexes = {BY_QUEUE: _queue_of_job, BY_RUNTIME: _runtime_of_job}
        yield Watch(TRAINER_API, "TrainJob", "trainjobs", indexes=indexes)
        yield Watch(TRAINER_API, "TrainingRuntime", "trainingruntimes", indexes={BY_QUEUE: _queue_of_runtime})
        yield Watch(
            *(TRAINER_API, "ClusterTrainingRuntime", "clustertrainingruntimes"),
            namespaced=False,
            indexes={BY_QUEUE: _queue_of_runtime},
        )

    def enforce_pod_group(self, info: Info, job: TrainJob, config: KAIPolicy) -> None:
        """Send the pods to the queue."""
        queue = _queue(job, config)
        if info.listers.get(QUEUE_API, "Queue", None, queue) is None:
            known = (each["metadata"]["name"] for each in info.listers.list(QUEUE_API, "Queue"))
            raise NotReady(f"KAI Scheduler has no queue {queue!r} {did_you_mean(queue, known)}")
        info.labels[QUEUE_LABEL] = queue
        replicated_jobs: list[JsonObject] = info.template.get("replicatedJobs") or []
        if any(each.get("dependsOn") for each in replicated_jobs):
            info.annotations.setdefault(MIN_MEMBER_ANNOTATION, "1")
        for pods in info.pod_sets:
            pods.pod_template.setdefault("metadata", {}).setdefault("labels", {})[QUEUE_LABEL] = queue
            pods.pod_spec["schedulerName"] = self.options.scheduler_name

    def validate(
        self, info: Info, job: TrainJob, listers: Listers, config: KAIPolicy
    ) -> Iterator[FieldError | FieldWarning]:
        """Check that the queue takes jobs, and that no other scheduler is asked for."""
        queue: JsonObject = listers.get(QUEUE_API, "Queue", None, _queue(job, config)) or {}
        status: JsonObject = queue.get("status") or {}
        children: list[str] = status.get("childQueues") or []
        if children:
            detail = f"KAI Scheduler runs nothing in a queue that has queues below it: use {', '.join(children)}"
            yield FieldWarning(f"metadata.labels[{QUEUE_LABEL}]", detail)
        for pods in info.pod_sets:
            named = pods.pod_spec.get("schedulerName", self.options.scheduler_name)
            if named != self.options.scheduler_name:
                detail = f"the pods of {pods.name} have a scheduler of their own; leave out their schedulerName"
                yield FieldError("spec.runtimeRef", detail, value=named)


def jobs_of_queue(queue: JsonObject, listers: Listers) -> Iterator[JobKey]:
    """Return the TrainJobs that a change of a queue concerns: those that name it, and those of runtimes that do."""
    name = queue["metadata"]["name"]
    for job in listers.by_index(TRAINER_API, "TrainJob", BY_QUEUE, name):
        yield job["metadata"]["namespace"], job["metadata"]["name"]
    for kind in ("TrainingRuntime", "ClusterTrainingRuntime"):
        for runtime in listers.by_index(TRAINER_API, kind, BY_QUEUE, name):
            place = f"{kind}/{runtime['metadata'].get('namespace', '')}/{runtime['metadata']['name']}"
            for job in listers.by_index(TRAINER_API, "TrainJob", BY_RUNTIME, place):
                yield job["metadata"]["namespace"], job["metadata"]["name"]


def _queue(job: TrainJob, config: KAIPolicy) -> str:
    return job.metadata.labels.get(QUEUE_LABEL, config.queue)


def _queue_of_job(job: JsonObject) -> Iterator[str]:
    labels: JsonObject = job["metadata"].get("labels") or {}
    if labels.get(QUEUE_LABEL):
        yield labels[QUEUE_LABEL]


def _runtime_of_job(job: JsonObject) -> Iterator[str]:
    spec: JsonObject = job.get("spec") or {}
    reference: JsonObject = spec.get("runtimeRef") or {}
    kind = reference.get("kind") or "ClusterTrainingRuntime"
    namespace = job["metadata"].get("namespace", "") if kind == "TrainingRuntime" else ""
    yield f"{kind}/{namespace}/{reference.get('name')}"


def _queue_of_runtime(runtime: JsonObject) -> Iterator[str]:
    spec: JsonObject = runtime.get("spec") or {}
    policy: JsonObject = spec.get("podGroupPolicy") or {}
    custom: JsonObject = policy.get("custom") or {}
    config: JsonObject = custom.get("config") or {}
    if custom.get("name") == KAI.name and isinstance(config.get("queue"), str):
        yield config["queue"]
