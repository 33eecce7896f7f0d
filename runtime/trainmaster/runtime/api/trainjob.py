"""TrainJob: what a user wants to train, on which runtime (Trainer API v1alpha1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trainmaster.runtime.api import constants
from trainmaster.runtime.api.meta import ApiModel, Condition, NullIsDefault, ObjectMeta, Strings
from trainmaster.runtime.api.shapes import NamedObjects, Resources, RuntimePatchSpec
from trainmaster.runtime.jsontree import JsonObject


def _present_group(group: Any) -> Any:
    return constants.GROUP if group == constants.LEGACY_GROUP else group


def _present_count(count: Any) -> Any:
    # Versions up to 2.1 had words here for what now happens without a number; TrainJobs of theirs may still be stored.
    return None if count in ("auto", "cpu", "gpu") else count


class RuntimeRef(ApiModel):
    """The runtime that a TrainJob is made from; its former group is read as the present one."""

    name: str
    """Of the runtime."""

    api_group: Annotated[str, NullIsDefault, BeforeValidator(_present_group)] = constants.GROUP
    """`trainer.kubeflow.org`."""

    kind: Annotated[str, NullIsDefault] = constants.CLUSTER_TRAINING_RUNTIME_KIND
    """`ClusterTrainingRuntime` or `TrainingRuntime`."""

    def with_defaults(self) -> JsonObject:
        """Return the JSON object with every field, given or not, as messages show it."""
        return {"name": self.name, "apiGroup": self.api_group, "kind": self.kind}


class InitializerSource(ApiModel):
    """Where a dataset or a model comes from."""

    storage_uri: str | None = None
    """Its address, for instance `hf://org/name` or `s3://bucket/path`; None leaves what the runtime says."""

    env: NamedObjects = Field(default_factory=list)
    """Environment variables, as EnvVar objects."""

    secret_ref: JsonObject | None = None
    """A LocalObjectReference to the Secret with the credentials; its keys become variables."""


class Initializer(ApiModel):
    """What is fetched before training starts."""

    dataset: InitializerSource | None = None
    """The dataset, if one is fetched."""

    model: InitializerSource | None = None
    """The model, if one is fetched."""


class ResourceClaim(ApiModel):
    """Devices that each node claims (KEP-2782): a claim that exists, or one made for each pod from a template."""

    name: str
    """What the claim is called within the pod."""

    resource_claim_name: str | None = None
    """A ResourceClaim that exists, which all nodes share."""

    resource_claim_template_name: str | None = None
    """The ResourceClaimTemplate from which each node gets a claim of its own."""

    container_names: Strings = Field(default_factory=list)
    """The containers that get the devices; none: the one called `node`."""


class Trainer(ApiModel):
    """The training itself; what is absent comes from the runtime."""

    image: str | None = None
    """The image of the container that trains."""

    command: list[str] | None = None
    """Its command; None or an empty list leaves that of the runtime."""

    args: list[str] | None = None
    """The arguments of its command, likewise."""

    env: NamedObjects = Field(default_factory=list)
    """Environment variables, as EnvVar objects, laid over those of the runtime by name."""

    num_nodes: int | None = None
    """How many pods train, all in all; any whole number that somebody wrote, however large."""

    resources_per_node: Resources | None = None
    """ResourceRequirements of each pod, laid over those of the runtime by resource."""

    resource_claims_per_node: Annotated[list[ResourceClaim], NullIsDefault] = Field(default_factory=list)
    """Devices that each pod claims."""

    num_proc_per_node: Annotated[int | None, BeforeValidator(_present_count)] = None
    """Processes on each node; None leaves that to the runtime and the framework."""


class RuntimePatch(ApiModel):
    """A change to the runtime's template that one manager (a user, Kueue, ...) asks for."""

    manager: str
    """Who asks for it, for instance `kueue.x-k8s.io/manager`: one patch each."""

    time: str | None = None
    """When it was asked for, in RFC 3339."""

    training_runtime_spec: RuntimePatchSpec | None = None
    """What is laid over the spec of the runtime, as JSON with the fields of the API."""


class TrainJobSpec(ApiModel):
    """What the user asked for."""

    runtime_ref: RuntimeRef
    """The runtime."""

    initializer: Initializer | None = None
    """What is fetched before, if anything."""

    trainer: Trainer | None = None
    """What differs from the runtime; None: nothing."""

    runtime_patches: Annotated[list[RuntimePatch], NullIsDefault] = Field(default_factory=list)
    """Changes to the template of the runtime, in their order."""

    suspend: Annotated[bool, NullIsDefault] = False
    """Whether nothing of it may run now; it can be resumed."""

    active_deadline_seconds: int | None = None
    """Seconds that it may take, counted anew after each suspension; None: any."""

    ttl_seconds_after_finished: int | None = None
    """Seconds after its end in which it is deleted; None: what the runtime says, else never."""

    managed_by: Annotated[str, NullIsDefault] = constants.MANAGED_BY_TRAINER
    """The controller whose job it is: plugins see only those of ours."""


class JobStatus(ApiModel):
    """How many Jobs of one ReplicatedJob are in which state; Jobs, not pods."""

    name: str
    """Of the ReplicatedJob."""

    ready: int = 0
    """Jobs whose pods are all ready, or have ended well."""

    succeeded: int = 0
    """Jobs that have ended well."""

    failed: int = 0
    """Jobs that have failed."""

    active: int = 0
    """Jobs with pods that have not ended."""

    suspended: int = 0
    """Jobs that are suspended."""


class TrainerMetric(ApiModel):
    """One number that the training reported, as text."""

    name: str
    """What was measured."""

    value: str
    """The number, as it was reported."""


class TrainerStatus(ApiModel):
    """Progress that the training itself reported (KEP-2779)."""

    progress_percentage: int | None = None
    """From 0 to 100."""

    estimated_remaining_seconds: int | None = None
    """Seconds until the end, as the training sees it."""

    metrics: Annotated[list[TrainerMetric], NullIsDefault] = Field(default_factory=list)
    """The last numbers."""

    last_updated_time: str | None = None
    """When it was reported, in RFC 3339."""


class TrainJobStatus(ApiModel):
    """What has been observed."""

    conditions: Annotated[list[Condition], NullIsDefault] = Field(default_factory=list)
    """One for each type."""

    jobs_status: Annotated[list[JobStatus], NullIsDefault] = Field(default_factory=list)
    """The workload, part by part."""

    trainer_status: TrainerStatus | None = None
    """What the training reports of itself, if it does."""

    runtime_snapshot_digest: str = ""
    """Of the text of its runtime snapshot, `sha256:` and hexadecimal digits; empty: it is not known yet."""

    def condition(self, condition_type: str) -> Condition | None:
        """Return the condition of that type."""
        for condition in self.conditions:
            if condition.type == condition_type:
                return condition
        return None


class TrainJob(ApiModel):
    """A training job."""

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    """Of the API."""

    kind: Literal["TrainJob"] = constants.TRAINJOB_KIND
    """Of the API."""

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    """Its name, namespace, UID, labels, annotations and so on."""

    spec: TrainJobSpec
    """What is wanted."""

    status: Annotated[TrainJobStatus, NullIsDefault] = Field(default_factory=TrainJobStatus)
    """What was observed, as the cache has it."""

    @property
    def is_finished(self) -> bool:
        """Whether the job has completed or failed; a finished job never runs again."""
        for condition in self.status.conditions:
            if condition.type in constants.FINAL_CONDITIONS and condition.is_true:
                return True
        return False
