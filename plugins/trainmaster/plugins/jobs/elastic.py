"""The elastic policy of a PyTorchJob: with how few and how many workers it trains, and how they meet.

Its workers meet by torchrun's dynamic rendezvous, by default at the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Self

from trainmaster.runtime.api.constants import (
    PET_MAX_RESTARTS,
    PET_NNODES,
    PET_NPROC_PER_NODE,
    PET_RDZV_BACKEND,
    PET_RDZV_ENDPOINT,
    PET_RDZV_ID,
)
from trainmaster.runtime.api.meta import ApiModel, NullIsDefault, Schema
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jobs.constants import WORKER
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value

PATH: Final = "spec.elasticPolicy"


class RendezvousConfig(ApiModel):
    """A setting of torchrun's rendezvous."""

    __schema__: ClassVar[Schema] = Schema(description=None)

    key: Annotated[str, NullIsDefault] = ""
    """Name of the option."""

    value: Annotated[str, NullIsDefault] = ""
    """Its value."""


class ElasticLimits(ApiModel):
    """How many workers there are."""

    min_replicas: int | None = None
    """The fewest workers; as many as maxReplicas if absent."""

    max_replicas: int | None = None
    """The most workers; as many as minReplicas if absent."""

    max_restarts: int | None = None
    """How often workers are started anew."""

    metrics: list[Annotated[JsonObject, Schema(ref="autoscaling.v2.MetricSpec")]] | None = None
    """What a HorizontalPodAutoscaler scales the workers by; without it there is none."""


class ElasticPolicy(ElasticLimits):
    """The number of workers may change while the job runs."""

    rdzv_backend: str | None = None
    """Rendezvous backend of torchrun: c10d (the default), etcd or etcd-v2."""

    rdzv_port: int | None = None
    """Port of the rendezvous."""

    rdzv_host: str | None = None
    """Host of the rendezvous; the first worker if absent."""

    rdzv_id: str | None = None
    """Name by which the workers of a job find each other."""

    rdzv_conf: list[RendezvousConfig] | None = None
    """More options of the rendezvous backend."""

    standalone: bool | None = None
    """Whether each pod trains on its own, with a rendezvous of its own."""

    n_proc_per_node: int | None = None
    """Deprecated: nprocPerNode of the spec."""

    def with_limits(self, workers: int | None) -> Self:
        """Fill in the limits: each is the other one if that alone is given, both are the number of workers otherwise.

        A job without workers stays without limits (V1-B13).
        """
        fewest = self.min_replicas if self.min_replicas is not None else self.max_replicas
        most = self.max_replicas if self.max_replicas is not None else self.min_replicas
        if fewest is None:
            fewest = most = workers
        if fewest is None:
            return self
        return self.model_copy(update={"min_replicas": fewest, "max_replicas": most})

    def impossible_limits(self) -> Iterator[FieldError]:
        """Return what is wrong with limits that no number of workers is within (V1-B17)."""
        fewest, most = self.min_replicas, self.max_replicas
        if fewest is not None and fewest < 1:
            yield FieldError(f"{PATH}.minReplicas", "must be greater than or equal to 1", value=fewest)
        elif most is not None and most < 1:
            yield FieldError(f"{PATH}.maxReplicas", "must be greater than or equal to 1", value=most)
        elif fewest is not None and most is not None and fewest > most:
            detail = f"must be less than or equal to maxReplicas, which is {most}"
            yield FieldError(f"{PATH}.minReplicas", detail, value=fewest)

    def environment(self, job: Job) -> Iterator[JsonObject]:
        """Build the variables from which torchrun knows where and with how many nodes to meet."""
        host = self.rdzv_host if self.rdzv_host is not None else job.kind.pod_name(job, WORKER, 0)
        port = self.rdzv_port if self.rdzv_port is not None else training_port(job, WORKER)
        yield env_value(PET_RDZV_ENDPOINT, f"{host}:{port}")
        yield env_value(PET_RDZV_BACKEND, self.rdzv_backend if self.rdzv_backend is not None else "c10d")
        yield env_value(PET_NNODES, f"{self.min_replicas}:{self.max_replicas}")
        if self.max_restarts is not None:
            yield env_value(PET_MAX_RESTARTS, self.max_restarts)
        if self.n_proc_per_node is not None:
            yield env_value(PET_NPROC_PER_NODE, self.n_proc_per_node)
        if self.rdzv_id is not None:
            yield env_value(PET_RDZV_ID, self.rdzv_id)
        if self.rdzv_conf:
            yield env_value("PET_RDZV_CONF", ",".join(f"{each.key}={each.value}" for each in self.rdzv_conf))
        if self.standalone:
            # torchrun reads it as a number; the original's empty one is none (V1-B14).
            yield env_value("PET_STANDALONE", 1)
