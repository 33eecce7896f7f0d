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
    container_names: Strings = Field(default_factory=list)


class EnvInjection(ApiModel):
    """Where else the variables of torchrun go, beyond the main container."""

    targets: Annotated[list[EnvInjectionTarget], NullIsDefault] = Field(default_factory=list)


class TorchPolicy(ApiModel):
    """Training with PyTorch's torchrun."""

    num_proc_per_node: ProcessCount | None = None
    env_injection: EnvInjection | None = None


class MPIPolicy(ApiModel):
    """Training with MPI: a launcher that reaches the nodes by SSH."""

    num_proc_per_node: Annotated[int, NullIsDefault] = 1
    mpi_implementation: Annotated[str, NullIsDefault] = constants.OPEN_MPI
    ssh_auth_mount_path: Annotated[str, NullIsDefault] = "/root/.ssh"
    run_launcher_as_node: Annotated[bool, NullIsDefault] = False


class FluxPolicy(ApiModel):
    """Training under the Flux resource manager."""

    num_proc_per_node: Annotated[int, NullIsDefault] = 1


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
    torch: TorchPolicy | None = None
    mpi: MPIPolicy | None = None
    jax: JAXPolicy | None = None
    xgboost: XGBoostPolicy | None = None
    flux: FluxPolicy | None = None
    custom: CustomPolicy | None = None


class CoschedulingPolicy(ApiModel):
    """Gang scheduling with the coscheduling plugin of scheduler-plugins."""

    schedule_timeout_seconds: Annotated[int, NullIsDefault] = 60


class NetworkTopology(ApiModel):
    """How close to each other Volcano places the pods."""

    mode: Annotated[str, NullIsDefault] = "hard"
    highest_tier_allowed: Annotated[int, NullIsDefault] = 1


class VolcanoPolicy(ApiModel):
    """Gang scheduling with Volcano."""

    network_topology: NetworkTopology | None = None


class PodGroupPolicy(ApiModel):
    """How the pods are scheduled together."""

    coscheduling: CoschedulingPolicy | None = None
    volcano: VolcanoPolicy | None = None
    custom: CustomPolicy | None = None


class JobSetTemplate(ApiModel):
    """The JobSet that a TrainJob starts from; its spec stays a JSON tree, because it is merged and not read."""

    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    spec: Annotated[JobSetSpec, NullIsDefault] = Field(default_factory=dict)

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


class TrainingRuntimeSpec(ApiModel):
    """What both kinds of runtime consist of."""

    ml_policy: MLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    run_policy: RunPolicy | None = None
    template: JobSetTemplate | None = None


class TrainingRuntime(ApiModel):
    """A runtime for the TrainJobs of its own namespace."""

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    kind: Literal["TrainingRuntime"] = constants.TRAINING_RUNTIME_KIND
    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    spec: Annotated[TrainingRuntimeSpec, NullIsDefault] = Field(default_factory=TrainingRuntimeSpec)


class ClusterTrainingRuntime(ApiModel):
    """A runtime for the TrainJobs of all namespaces."""

    api_version: Literal["trainer.kubeflow.org/v1alpha1"] = constants.API_VERSION
    kind: Literal["ClusterTrainingRuntime"] = constants.CLUSTER_TRAINING_RUNTIME_KIND
    metadata: Annotated[ObjectMeta, NullIsDefault] = Field(default_factory=ObjectMeta)
    spec: Annotated[TrainingRuntimeSpec, NullIsDefault] = Field(default_factory=TrainingRuntimeSpec)
