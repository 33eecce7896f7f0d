"""TrainingRuntime and ClusterTrainingRuntime: blueprints that platform engineers prepare (Trainer API v1alpha1)."""

from __future__ import annotations

import functools
from typing import Annotated, ClassVar, Final, Literal

import orjson
from pydantic import Field

from trainmaster.runtime.api import constants
from trainmaster.runtime.api.meta import NAME, ApiModel, Definition, NullIsDefault, ObjectMeta, Schema
from trainmaster.runtime.api.resilience import ResiliencePolicy
from trainmaster.runtime.api.scheduling import Scheduling
from trainmaster.runtime.api.shapes import JobSetSpec, ProcessCount
from trainmaster.runtime.canonical import without_blanks
from trainmaster.runtime.jsontree import JsonObject


class EnvInjectionTarget(ApiModel):
    """Containers of one ReplicatedJob that get the variables of torchrun as well."""

    __schema__: ClassVar[Schema] = Schema(description=None)

    job_name: Annotated[str, NAME]
    """A ReplicatedJob of the template."""

    container_names: Annotated[
        list[Annotated[str, Schema(maxLength=63)]],
        NullIsDefault,
        Schema(
            (
                "!self.exists(c, c == 'node')",
                (
                    "containerNames must not include the main node container because PET_* envs are always injected"
                    " into it"
                ),
            ),
            required=True,
            list_type="set",
            minItems=1,
            maxItems=8,
        ),
    ] = Field(default_factory=list)
    """Containers of that ReplicatedJob, other than the main one.

    Init containers are among them.
    """


class EnvInjection(ApiModel):
    """Further containers that get the PET_* variables of torchrun."""

    targets: Annotated[list[EnvInjectionTarget], NullIsDefault, Schema(keys=["jobName"], maxItems=16)] = Field(
        default_factory=list
    )
    """Containers by ReplicatedJob."""


class ElasticPolicy(ApiModel):
    """Between how few and how many nodes the job trains (KEP-2903).

    The number may change while it runs: nodes meet by torchrun's dynamic rendezvous.
    """

    __schema__: ClassVar[Schema] = Schema(
        (
            "!has(self.minNodes) || !has(self.maxNodes) || self.minNodes <= self.maxNodes",
            "minNodes must not be greater than maxNodes",
        )
    )

    min_nodes: Annotated[int | None, Schema(minimum=1)] = None
    """The fewest nodes that train; 1 if absent."""

    max_nodes: Annotated[int | None, Schema(minimum=1)] = None
    """The most nodes that train; as many as minNodes if absent."""

    max_restarts: Annotated[int | None, Schema(minimum=0)] = None
    """How often torchrun starts the processes anew after one of them failed, for instance because its peer left; nodes
    that join do not count. As torchrun says if absent: never."""


class TorchPolicy(ApiModel):
    """Training with PyTorch's torchrun."""

    num_proc_per_node: Annotated[
        ProcessCount | None,
        Schema(
            (
                "type(self) == int ? self >= 1 : self in ['auto', 'cpu', 'gpu']",
                "NumProcPerNode in torchPolicy must be auto, cpu, gpu or an integer >= 1",
            )
        ),
    ] = None
    """Processes on each node unless the TrainJob says otherwise: a number, gpu (one for each GPU that torchrun finds),
    cpu (one for each CPU of the container), or auto, the default (gpu where the container has GPUs, one for each other
    accelerator, else cpu)."""

    elastic_policy: ElasticPolicy | None = None

    env_injection: EnvInjection | None = None


class MPIPolicy(ApiModel):
    """Training with MPI.

    A launcher reaches the nodes by SSH.
    """

    num_proc_per_node: Annotated[
        int, NullIsDefault, Schema(("self >= 1", "NumProcPerNode in mpiPolicy must be >= 1"))
    ] = 1
    """Slots of each node in the hostfile."""

    mpi_implementation: Annotated[str, NullIsDefault, Schema(enum=[*constants.MPI_IMPLEMENTATIONS, ""])] = (
        constants.OPEN_MPI
    )
    """The MPI that the image contains."""

    ssh_auth_mount_path: Annotated[str, NullIsDefault, Schema(maxLength=4096)] = "/root/.ssh"
    """Directory in which the nodes find their SSH keys."""

    run_launcher_as_node: Annotated[bool, NullIsDefault] = False
    """Whether the launcher trains as well."""


class FluxPolicy(ApiModel):
    """Training under the Flux resource manager."""

    num_proc_per_node: Annotated[
        int, NullIsDefault, Schema(("self >= 1", "NumProcPerNode in fluxPolicy must be >= 1"))
    ] = 1
    """Processes on each node."""


class JAXPolicy(ApiModel):
    """Training with JAX."""


class XGBoostPolicy(ApiModel):
    """Training with XGBoost."""


class CustomPolicy(ApiModel):
    """A policy that a plugin serves which the API does not know: the plugin's model says what is in `config`."""

    name: Annotated[str, NAME, Schema(pattern="^[A-Za-z0-9_.-]+$")]
    """The plugin, by the name of its entry point: trainmaster plugins list shows those that there are."""

    config: Annotated[JsonObject, NullIsDefault, Schema(preserve_unknown_fields=True)] = Field(default_factory=dict)
    """The settings of the plugin, whatever they are. Fields that it does not know, and values that it does not take,
    are refused when the runtime is written; a plugin that is not there judges nothing."""


_ONLY_ONE: Final = "Only one of the policy can be configured"


class MLPolicy(ApiModel):
    """The machine learning framework and its settings; at most one framework can be given."""

    __schema__: ClassVar[Schema] = Schema(
        (
            (
                "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux), has(self.custom)]"
                ".filter(x, x).size() <= 1"
            ),
            _ONLY_ONE,
        )
    )

    num_nodes: int | None = None
    """How many nodes train unless the TrainJob says otherwise; 1 if absent."""

    torch: TorchPolicy | None = None

    mpi: MPIPolicy | None = None

    jax: JAXPolicy | None = None

    xgboost: XGBoostPolicy | None = None

    flux: FluxPolicy | None = None

    custom: CustomPolicy | None = None
    """Training with a framework that is served by a plugin that is installed beside Trainmaster's own. TrainJobs of a
    runtime whose plugin is not there wait for it."""


class CoschedulingPolicy(ApiModel):
    """Gang scheduling by the coscheduling plugin of scheduler-plugins."""

    schedule_timeout_seconds: Annotated[int, NullIsDefault] = 60
    """How long the scheduler waits until all pods of the group fit."""


class NetworkTopology(ApiModel):
    """How close to each other the pods are placed."""

    mode: Annotated[str, NullIsDefault, Schema(enum=["hard", "soft"])] = "hard"
    """Whether the tier is a must (hard) or a wish (soft)."""

    highest_tier_allowed: Annotated[int, NullIsDefault, Schema(format=None)] = 1
    """Highest tier of the network that the pods may span."""


class VolcanoPolicy(ApiModel):
    """Gang scheduling by Volcano."""

    network_topology: NetworkTopology | None = None


class PodGroupPolicy(ApiModel):
    """How the pods of a TrainJob are scheduled together."""

    # The two that the original has may both be set, there as here.
    __schema__: ClassVar[Schema] = Schema(
        ("!has(self.custom) || !(has(self.coscheduling) || has(self.volcano))", _ONLY_ONE)
    )

    coscheduling: CoschedulingPolicy | None = None

    volcano: VolcanoPolicy | None = None

    custom: CustomPolicy | None = None
    """Gang scheduling by a scheduler that is served by a plugin that is installed beside Trainmaster's own. TrainJobs
    of a runtime whose plugin is not there wait for it."""


class JobSetTemplate(ApiModel):
    """The JobSet from which a TrainJob starts.

    Its spec stays a JSON tree, because it is merged and not read.
    """

    __schema__: ClassVar[Schema] = Schema(minProperties=1)

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)

    spec: Annotated[JobSetSpec, NullIsDefault] = Field(default_factory=dict)
    """What the JobSet consists of."""

    @functools.cached_property
    def spec_text(self) -> bytes:
        """The spec as JSON without blanks: from it each TrainJob gets trees of its own most cheaply.

        Raises:
            TypeError: It holds what no JSON has, or is nested too deeply.
        """
        return orjson.dumps(without_blanks(self.spec))


class RunPolicy(ApiModel):
    """The life of TrainJobs.

    It holds as far as they do not say otherwise (KEP-2899).
    """

    ttl_seconds_after_finished: Annotated[int | None, Schema(minimum=0)] = None
    """How long TrainJobs are kept after their end unless they say otherwise; for ever if absent."""


class TrainingRuntimeSpec(ApiModel):
    """What TrainJobs that name this runtime start from."""

    __schema__: ClassVar[Schema] = Schema(minProperties=1)

    ml_policy: MLPolicy | None = None

    pod_group_policy: PodGroupPolicy | None = None

    scheduling: Scheduling | None = None

    run_policy: RunPolicy | None = None

    resilience_policy: ResiliencePolicy | None = None

    template: JobSetTemplate | None = None


class TrainingRuntime(ApiModel):
    """A blueprint for the TrainJobs of its namespace."""

    __definition__: ClassVar[Definition] = Definition(constants.GROUP, constants.VERSION)

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    """Of the API."""

    kind: Literal["TrainingRuntime"] = constants.TRAINING_RUNTIME_KIND
    """Of the API."""

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    """Its name, labels, annotations and so on."""

    spec: Annotated[TrainingRuntimeSpec, NullIsDefault] = Field(default_factory=TrainingRuntimeSpec)


class ClusterTrainingRuntime(ApiModel):
    """A blueprint for TrainJobs of any namespace."""

    __definition__: ClassVar[Definition] = Definition(constants.GROUP, constants.VERSION, namespaced=False)

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    """Of the API."""

    kind: Literal["ClusterTrainingRuntime"] = constants.CLUSTER_TRAINING_RUNTIME_KIND
    """Of the API."""

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    """Its name, labels, annotations and so on."""

    spec: Annotated[TrainingRuntimeSpec, NullIsDefault] = Field(default_factory=TrainingRuntimeSpec)
