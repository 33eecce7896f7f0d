"""TrainingRuntime and ClusterTrainingRuntime: blueprints that platform engineers prepare (Trainer API v1alpha1)."""

from __future__ import annotations

import functools
from typing import Annotated, Literal

import orjson
from pydantic import Field

from trainmaster.runtime.api import constants
from trainmaster.runtime.api.meta import ApiModel, NullIsDefault, ObjectMeta, Strings
from trainmaster.runtime.api.shapes import JobSetSpec, ProcessCount
from trainmaster.runtime.canonical import without_blanks
from trainmaster.runtime.jsontree import JsonObject


class EnvInjectionTarget(ApiModel):
    """Containers of one ReplicatedJob that get the variables of torchrun as well."""

    job_name: str
    """Of the ReplicatedJob."""

    container_names: Strings = Field(default_factory=list)
    """Of its containers, init containers included."""


class EnvInjection(ApiModel):
    """Where else the variables of torchrun go, beyond the main container."""

    targets: Annotated[list[EnvInjectionTarget], NullIsDefault] = Field(default_factory=list)
    """One for each ReplicatedJob."""


class TorchPolicy(ApiModel):
    """Training with PyTorch's torchrun."""

    num_proc_per_node: ProcessCount | None = None
    """Processes on each node: a number, or `auto`, `cpu` or `gpu`; None is `auto`."""

    env_injection: EnvInjection | None = None
    """None: nowhere."""


class MPIPolicy(ApiModel):
    """Training with MPI: a launcher that reaches the nodes by SSH."""

    num_proc_per_node: Annotated[int, NullIsDefault] = 1
    """Slots of each node."""

    mpi_implementation: Annotated[str, NullIsDefault] = constants.OPEN_MPI
    """`OpenMPI`, `IntelMPI` or `MPICH`."""

    ssh_auth_mount_path: Annotated[str, NullIsDefault] = "/root/.ssh"
    """The directory in containers in which the keys are."""

    run_launcher_as_node: Annotated[bool, NullIsDefault] = False
    """Whether the launcher trains, too."""


class FluxPolicy(ApiModel):
    """Training under the Flux resource manager."""

    num_proc_per_node: Annotated[int, NullIsDefault] = 1
    """Tasks on each node."""


class JAXPolicy(ApiModel):
    """Training with JAX; there is nothing to set."""


class XGBoostPolicy(ApiModel):
    """Training with XGBoost; there is nothing to set."""


class CustomPolicy(ApiModel):
    """A policy that a plugin serves which the API does not know: the plugin's model says what is in `config`."""

    name: str
    """The plugin."""

    config: Annotated[JsonObject, NullIsDefault] = Field(default_factory=dict)


class MLPolicy(ApiModel):
    """The framework of the runtime (at most one is set) and its default number of nodes."""

    num_nodes: int | None = None
    """How many pods train if the TrainJob does not say; None: what the template has."""

    torch: TorchPolicy | None = None
    """PyTorch."""

    mpi: MPIPolicy | None = None
    """MPI."""

    jax: JAXPolicy | None = None
    """JAX."""

    xgboost: XGBoostPolicy | None = None
    """XGBoost."""

    flux: FluxPolicy | None = None
    """Flux."""

    custom: CustomPolicy | None = None
    """A framework that the plugin of this name knows."""


class CoschedulingPolicy(ApiModel):
    """Gang scheduling with the coscheduling plugin of scheduler-plugins."""

    schedule_timeout_seconds: Annotated[int, NullIsDefault] = 60
    """Seconds that a gang waits for its last pod."""


class NetworkTopology(ApiModel):
    """How close to each other Volcano places the pods."""

    mode: Annotated[str, NullIsDefault] = "hard"
    """`hard` or `soft`."""

    highest_tier_allowed: Annotated[int, NullIsDefault] = 1
    """The tier that pods may be apart; `hard` never goes beyond."""


class VolcanoPolicy(ApiModel):
    """Gang scheduling with Volcano."""

    network_topology: NetworkTopology | None = None
    """None: anywhere."""


class PodGroupPolicy(ApiModel):
    """How the pods are scheduled together."""

    coscheduling: CoschedulingPolicy | None = None
    """The coscheduling plugin of scheduler-plugins."""

    volcano: VolcanoPolicy | None = None
    """Volcano."""

    custom: CustomPolicy | None = None
    """A gang scheduler that the plugin of this name knows."""


class JobSetTemplate(ApiModel):
    """The JobSet that a TrainJob starts from; its spec stays a JSON tree, because it is merged and not read."""

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    """Labels and annotations of the JobSet."""

    spec: Annotated[JobSetSpec, NullIsDefault] = Field(default_factory=dict)
    """The JobSetSpec, with the field names of its API."""

    @functools.cached_property
    def spec_text(self) -> bytes:
        """The spec as JSON without blanks: from it each TrainJob gets trees of its own most cheaply.

        Raises:
            TypeError: It holds what no JSON has, or is nested too deeply.
        """
        return orjson.dumps(without_blanks(self.spec))


class RunPolicy(ApiModel):
    """The life of the TrainJobs of a runtime, as far as they do not say otherwise (KEP-2899)."""

    ttl_seconds_after_finished: int | None = None
    """Seconds after the end of a TrainJob in which it is deleted."""


class TrainingRuntimeSpec(ApiModel):
    """What both kinds of runtime consist of."""

    ml_policy: MLPolicy | None = None
    """The framework, if there is one."""

    pod_group_policy: PodGroupPolicy | None = None
    """The gang scheduler, if there is one."""

    run_policy: RunPolicy | None = None
    """What TrainJobs do not say of their life."""

    template: JobSetTemplate | None = None
    """The JobSet."""


class TrainingRuntime(ApiModel):
    """A runtime for the TrainJobs of its own namespace."""

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    """Of the API."""

    kind: Literal["TrainingRuntime"] = constants.TRAINING_RUNTIME_KIND
    """Of the API."""

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    """Its name, labels, annotations and so on."""

    spec: Annotated[TrainingRuntimeSpec, NullIsDefault] = Field(default_factory=TrainingRuntimeSpec)
    """What TrainJobs are made from."""


class ClusterTrainingRuntime(ApiModel):
    """A runtime for the TrainJobs of all namespaces."""

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    """Of the API."""

    kind: Literal["ClusterTrainingRuntime"] = constants.CLUSTER_TRAINING_RUNTIME_KIND
    """Of the API."""

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    """Its name, labels, annotations and so on."""

    spec: Annotated[TrainingRuntimeSpec, NullIsDefault] = Field(default_factory=TrainingRuntimeSpec)
    """What TrainJobs are made from."""
