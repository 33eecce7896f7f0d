"""TrainJob: what a user wants to train, on which runtime (Trainer API v1alpha1)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from trainmaster.runtime.api import constants
from trainmaster.runtime.api.meta import (
    AGE,
    DATE_TIME,
    IMMUTABLE,
    NAME,
    SUBDOMAIN,
    ApiModel,
    Condition,
    Definition,
    NullIsDefault,
    ObjectMeta,
    Schema,
)
from trainmaster.runtime.api.resilience import ResiliencePolicy, ResilienceStatus
from trainmaster.runtime.api.scheduling import ONE_SOURCE, PodResourceClaim
from trainmaster.runtime.api.shapes import NamedObjects, Resources, RuntimePatchSpec
from trainmaster.runtime.api.trainingruntime import ElasticPolicy
from trainmaster.runtime.jsontree import JsonObject


def _present_group(group: Any) -> Any:
    return constants.GROUP if group == constants.LEGACY_GROUP else group


def _present_count(count: Any) -> Any:
    # Versions up to 2.1 had words here for what now happens without a number; TrainJobs of theirs may still be stored.
    return None if count in ("auto", "cpu", "gpu") else count


class RuntimeRef(ApiModel):
    """The runtime that the job is made from, as it is when the job starts.

    Its former group is read as the present one.
    """

    name: Annotated[str, NAME]
    """Name of the runtime."""

    api_group: Annotated[str, NullIsDefault, BeforeValidator(_present_group), Schema(maxLength=SUBDOMAIN)] = (
        constants.GROUP
    )
    """Group of the runtime."""

    kind: Annotated[str, NullIsDefault, Schema(maxLength=SUBDOMAIN)] = constants.CLUSTER_TRAINING_RUNTIME_KIND
    """TrainingRuntime (of the same namespace) or ClusterTrainingRuntime."""

    def with_defaults(self) -> JsonObject:
        """Return the JSON object with every field, given or not, as messages show it."""
        return {"name": self.name, "apiGroup": self.api_group, "kind": self.kind}


class InitializerSource(ApiModel):
    """Where a dataset or a model comes from."""

    storage_uri: Annotated[
        str | None,
        Schema(
            (
                "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')",
                "storageUri may be empty, or it must be a valid URI (scheme://...)",
            ),
            maxLength=2048,
        ),
    ] = None
    """Where it is: scheme://path. None leaves what the runtime says."""

    env: NamedObjects = Field(default_factory=list)
    """Variables of the initializer's container."""

    secret_ref: Annotated[JsonObject | None, Schema(ref="core.v1.LocalObjectReference")] = None
    """Secret of the namespace whose keys become variables of the initializer's container."""


class Initializer(ApiModel):
    """What is fetched before the training starts."""

    dataset: Annotated[
        InitializerSource | None, Schema(descriptions={"storageUri": "Where the dataset is: scheme://path."})
    ] = None
    """How the dataset is fetched."""

    model: Annotated[
        InitializerSource | None, Schema(descriptions={"storageUri": "Where the model is: scheme://path."})
    ] = None
    """How the model is fetched."""


class ResourceClaim(PodResourceClaim):
    """Devices that each node claims (KEP-2782): a claim that exists, or one made for each pod from a template."""

    __schema__: ClassVar[Schema] = ONE_SOURCE

    container_names: Annotated[
        list[Annotated[str, Schema(minLength=1, maxLength=63)]], NullIsDefault, Schema(list_type="set", maxItems=8)
    ] = Field(default_factory=list)
    """Containers that use the claim; if there are none, the training container."""


_ARGUMENT: Final = Schema(maxLength=1 << 20)
_ARGUMENTS: Final = Schema(list_type="atomic", maxItems=128)


class Trainer(ApiModel):
    """The training itself; what is absent comes from the runtime."""

    image: Annotated[str | None, Schema(maxLength=500)] = None
    """Image of the training container."""

    command: Annotated[list[Annotated[str, _ARGUMENT]] | None, _ARGUMENTS] = None
    """Entry point of the training container.

    An empty list leaves that of the runtime, as None does; so it is with the arguments.
    """

    args: Annotated[list[Annotated[str, _ARGUMENT]] | None, _ARGUMENTS] = None
    """Arguments of the entry point."""

    env: NamedObjects = Field(default_factory=list)
    """Variables of the training container; they win over those of the runtime."""

    num_nodes: Annotated[
        int | None, Schema(("self >= 1 || self == oldSelf", "must be greater than or equal to 1"), minimum=0)
    ] = None
    """How many nodes train.

    Any whole number that somebody wrote, however large.
    """

    resources_per_node: Resources | None = None
    """Resources of the training container on each node.

    They are laid over those of the runtime by resource.
    """

    resource_claims_per_node: Annotated[list[ResourceClaim], NullIsDefault, Schema(keys=["name"], maxItems=32)] = Field(
        default_factory=list
    )
    """Devices that each node claims (dynamic resource allocation)."""

    num_proc_per_node: Annotated[
        int | None,
        BeforeValidator(_present_count),
        Schema(("self >= 1", "numProcPerNode must be greater than or equal to 1")),
    ] = None
    """How many processes train on each node."""

    elastic_policy: ElasticPolicy | None = None
    """Within which limits numNodes may change while the job trains: laid over that of the runtime, field by field."""


_FIXED: Final = " && ".join(
    f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
    for name in (field.alias for field in Trainer.model_fields.values())
    if name != "numNodes"
)
"""The rule that nothing of a trainer changes but its number of nodes; whether that may, the runtime says."""


class RuntimePatch(ApiModel):
    """Changes to the runtime on behalf of one manager."""

    manager: Annotated[str, NAME, Schema(IMMUTABLE)]
    """Who asks for the changes, for instance kueue.x-k8s.io/manager."""

    time: Annotated[str | None, DATE_TIME] = None
    """When the changes were last made; set by the admission webhook."""

    training_runtime_spec: RuntimePatchSpec | None = None
    """Changes to the runtime, as it applies to this TrainJob."""


class TrainJobSpec(ApiModel):
    """What to train, and on which runtime."""

    runtime_ref: Annotated[RuntimeRef, Schema(IMMUTABLE)]

    initializer: Annotated[Initializer | None, Schema(IMMUTABLE)] = None

    trainer: Annotated[Trainer | None, Schema((_FIXED, IMMUTABLE[1]))] = None

    runtime_patches: Annotated[list[RuntimePatch], NullIsDefault, Schema(keys=["manager"], maxItems=16)] = Field(
        default_factory=list
    )
    """Changes to the runtime for this job only, applied one after the other."""

    resilience_policy: ResiliencePolicy | None = None
    """What becomes of the job if it fails, loses a node or stands still: laid over that of the runtime, field by field.
    A change holds from the next time on that all pods are made anew by Trainmaster."""

    suspend: Annotated[bool, NullIsDefault] = False
    """Whether the job is kept from running."""

    active_deadline_seconds: Annotated[int | None, Schema(IMMUTABLE, minimum=1, format="int64")] = None
    """How long the job may run before it is stopped and fails.

    Counted anew after each suspension.
    """

    ttl_seconds_after_finished: Annotated[int | None, Schema(minimum=0)] = None
    """How long the job is kept after its end; if absent, as long as its runtime says, or for ever."""

    managed_by: Annotated[
        str,
        NullIsDefault,
        Schema(
            (
                f"self in ['{constants.MANAGED_BY_TRAINER}', '{constants.MANAGED_BY_MULTIKUEUE}']",
                f"ManagedBy must be {constants.MANAGED_BY_TRAINER} or {constants.MANAGED_BY_MULTIKUEUE} if set",
            ),
            IMMUTABLE,
            maxLength=SUBDOMAIN,
        ),
    ] = constants.MANAGED_BY_TRAINER
    """The controller that is in charge of the job."""


_COUNT: Final = Schema(required=True, minimum=0)


class JobStatus(ApiModel):
    """Numbers of Jobs by state."""

    name: Annotated[str, NAME]
    """The ReplicatedJob."""

    ready: Annotated[int, _COUNT] = 0
    """Jobs whose pods are all ready or succeeded."""

    succeeded: Annotated[int, _COUNT] = 0
    """Jobs that succeeded."""

    failed: Annotated[int, _COUNT] = 0
    """Jobs that failed."""

    active: Annotated[int, _COUNT] = 0
    """Jobs with at least one running or pending pod."""

    suspended: Annotated[int, _COUNT] = 0
    """Jobs that are suspended."""


class TrainerMetric(ApiModel):
    """One number that the training reported, as text."""

    __schema__: ClassVar[Schema] = Schema(description=None)

    name: Annotated[str, Schema(minLength=1, maxLength=64)]
    """What was measured."""

    value: Annotated[str, Schema(minLength=1, maxLength=64)]
    """The number, as text."""


class TrainerStatus(ApiModel):
    """What the training reported about itself."""

    __schema__: ClassVar[Schema] = Schema(
        ("has(self.lastUpdatedTime)", "lastUpdatedTime is required when trainerStatus is present")
    )

    progress_percentage: Annotated[int | None, Schema(minimum=0, maximum=100)] = None
    """How much of the training is done."""

    estimated_remaining_seconds: Annotated[int | None, Schema(minimum=0)] = None
    """How long it will take."""

    metrics: Annotated[list[TrainerMetric], NullIsDefault, Schema(list_type="atomic", maxItems=256)] = Field(
        default_factory=list
    )
    """Latest values of what the training measures, for instance its loss."""

    last_updated_time: Annotated[str | None, DATE_TIME] = None
    """When the training reported this."""

    last_checkpoint_time: Annotated[str | None, DATE_TIME] = None
    """When it wrote its last checkpoint. An extension: definitions of the original drop it."""

    world_size: Annotated[int | None, Schema(minimum=1)] = None
    """How many processes train together. An extension: definitions of the original drop it."""


class TrainJobStatus(ApiModel):
    """What has been observed."""

    __schema__: ClassVar[Schema] = Schema(minProperties=1)

    conditions: Annotated[list[Condition], NullIsDefault, Schema(keys=["type"], maxItems=8)] = Field(
        default_factory=list
    )
    """Whether the job is suspended, is complete or has failed."""

    jobs_status: Annotated[list[JobStatus], NullIsDefault, Schema(keys=["name"], maxItems=100)] = Field(
        default_factory=list
    )
    """State of each ReplicatedJob."""

    trainer_status: TrainerStatus | None = None

    restarts: Annotated[int | None, Schema(minimum=0)] = None
    """How often the training was started again: as a whole, and in each attempt its node that was most often.

    A crash of one node that ends the others counts once.
    """

    resilience: ResilienceStatus | None = None

    runtime_snapshot_digest: Annotated[str, Schema(minLength=1, maxLength=128, default=None)] = ""
    """Digest of the runtime snapshot that the job is built from; another one is not used.

    `sha256:` and hexadecimal digits; empty: it is not known yet.
    """

    def condition(self, condition_type: str) -> Condition | None:
        """Return the condition of that type."""
        for condition in self.conditions:
            if condition.type == condition_type:
                return condition
        return None


class TrainJob(ApiModel):
    """A training job: what to train, and on which runtime."""

    __definition__: ClassVar[Definition] = Definition(
        constants.GROUP,
        constants.VERSION,
        columns=(
            # What holds now; a resumed job is not suspended any more, whatever its last condition is about.
            ("State", '.status.conditions[?(@.status=="True")].type'),
            ("Active", ".status.jobsStatus[?(@.active>0)].name"),
            AGE,
        ),
        scale=(".spec.trainer.numNodes", ".status.resilience.nodes", ".status.resilience.selector"),
    )
    __schema__: ClassVar[Schema] = Schema(
        (
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name must match RFC 1035 DNS label format",
        ),
        ("size(self.metadata.name) <= 63", "metadata.name must be no more than 63 characters"),
    )

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    """Of the API."""

    kind: Literal["TrainJob"] = constants.TRAINJOB_KIND
    """Of the API."""

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    """Its name, namespace, UID, labels, annotations and so on."""

    spec: Annotated[TrainJobSpec, Schema(required=False)]

    status: Annotated[TrainJobStatus, NullIsDefault] = Field(default_factory=TrainJobStatus)

    @property
    def is_finished(self) -> bool:
        """Whether the job has completed or failed; a finished job never runs again."""
        for condition in self.status.conditions:
            if condition.type in constants.FINAL_CONDITIONS and condition.is_true:
                return True
        return False
