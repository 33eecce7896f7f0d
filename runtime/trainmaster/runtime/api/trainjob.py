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
    api_group: Annotated[str, NullIsDefault, BeforeValidator(_present_group)] = constants.GROUP
    kind: Annotated[str, NullIsDefault] = constants.CLUSTER_TRAINING_RUNTIME_KIND

    def with_defaults(self) -> JsonObject:
        """Return the JSON object with every field, given or not, as messages show it."""
        return {"name": self.name, "apiGroup": self.api_group, "kind": self.kind}


class InitializerSource(ApiModel):
    """Where a dataset or a model comes from."""

    storage_uri: str | None = None
    env: NamedObjects = Field(default_factory=list)
    secret_ref: JsonObject | None = None


class Initializer(ApiModel):
    """What is fetched before training starts."""

    dataset: InitializerSource | None = None
    model: InitializerSource | None = None


class ResourceClaim(ApiModel):
    """Devices that each node claims (KEP-2782): a claim that exists, or one made for each pod from a template."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    container_names: Strings = Field(default_factory=list)


class Trainer(ApiModel):
    """The training itself; what is absent comes from the runtime."""

    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: NamedObjects = Field(default_factory=list)
    num_nodes: int | None = None
    resources_per_node: Resources | None = None
    resource_claims_per_node: Annotated[list[ResourceClaim], NullIsDefault] = Field(default_factory=list)
    num_proc_per_node: Annotated[int | None, BeforeValidator(_present_count)] = None


class RuntimePatch(ApiModel):
    """A change to the runtime's template that one manager (a user, Kueue, ...) asks for."""

    manager: str
    time: str | None = None
    training_runtime_spec: RuntimePatchSpec | None = None


class TrainJobSpec(ApiModel):
    """What the user asked for."""

    runtime_ref: RuntimeRef
    initializer: Initializer | None = None
    trainer: Trainer | None = None
    runtime_patches: Annotated[list[RuntimePatch], NullIsDefault] = Field(default_factory=list)
    suspend: Annotated[bool, NullIsDefault] = False
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    managed_by: Annotated[str, NullIsDefault] = constants.MANAGED_BY_TRAINER


class JobStatus(ApiModel):
    """How many Jobs of one ReplicatedJob are in which state; Jobs, not pods."""

    name: str
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    active: int = 0
    suspended: int = 0


class TrainerMetric(ApiModel):
    """One number that the training reported, as text."""

    name: str
    value: str


class TrainerStatus(ApiModel):
    """Progress that the training itself reported (KEP-2779)."""

    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    metrics: Annotated[list[TrainerMetric], NullIsDefault] = Field(default_factory=list)
    last_updated_time: str | None = None


class TrainJobStatus(ApiModel):
    """What has been observed."""

    conditions: Annotated[list[Condition], NullIsDefault] = Field(default_factory=list)
    jobs_status: Annotated[list[JobStatus], NullIsDefault] = Field(default_factory=list)
    trainer_status: TrainerStatus | None = None

    def condition(self, condition_type: str) -> Condition | None:
        """Return the condition of that type."""
        return next((condition for condition in self.conditions if condition.type == condition_type), None)


class TrainJob(ApiModel):
    """A training job."""

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    kind: Literal["TrainJob"] = constants.TRAINJOB_KIND
    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    spec: TrainJobSpec
    status: Annotated[TrainJobStatus, NullIsDefault] = Field(default_factory=TrainJobStatus)

    @property
    def is_finished(self) -> bool:
        """Whether the job has completed or failed; a finished job never runs again."""
        return any(
            condition.is_true for condition in self.status.conditions if condition.type in constants.FINAL_CONDITIONS
        )
