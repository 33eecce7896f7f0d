"""The parts of a training job of `kubeflow.org/v1` that all kinds have.

The objects are shared and never changed; templates are plain JSON, and whoever changes one takes a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from trainmaster.runtime.api.meta import ApiModel, NullIsDefault, Schema
from trainmaster.runtime.api.shapes import PodTemplate
from trainmaster.runtime.jobs.constants import CLEAN_NONE, MANAGED_BY_TRAINING_OPERATOR
from trainmaster.runtime.jsontree import JsonObject

_NONE: Final = Schema(default=None)
"""The definition has no default: what is stored stays as its author wrote it."""


class SchedulingPolicy(ApiModel):
    """How the pods are scheduled as a gang, where the operator is configured with a gang scheduler."""

    min_available: int | None = None
    """How many pods start together; all of them if absent."""

    queue: Annotated[
        str,
        NullIsDefault,
        Schema(("self == oldSelf", "spec.runPolicy.schedulingPolicy.queue is immutable")),
    ] = ""
    """Queue of Volcano."""

    min_resources: dict[str, Annotated[str | int | float, Schema(ref="api.resource.Quantity")]] | None = None
    """What has to be free before pods start; if absent, what minAvailable pods request."""

    priority_class: Annotated[str, NullIsDefault] = ""
    """Priority class of the pod group of Volcano."""

    schedule_timeout_seconds: int | None = None
    """How long pods wait for each other (scheduler-plugins only)."""


class RunPolicy(ApiModel):
    """How the job runs and ends, whatever its framework."""

    clean_pod_policy: Annotated[str, NullIsDefault, _NONE] = CLEAN_NONE
    """Which pods are deleted when the job has finished: All, Running or None (the default)."""

    ttl_seconds_after_finished: int | None = None
    """How long the job is kept after its end; if absent, for ever."""

    active_deadline_seconds: Annotated[int | None, Schema(format="int64")] = None
    """How long the job may run before it is stopped and fails."""

    backoff_limit: int | None = None
    """How many restarts there may be before the job fails."""

    scheduling_policy: Annotated[SchedulingPolicy, NullIsDefault] = SchedulingPolicy()

    suspend: Annotated[bool, NullIsDefault] = False
    """Whether the job is kept from running."""

    managed_by: Annotated[str, NullIsDefault, _NONE] = MANAGED_BY_TRAINING_OPERATOR
    """The controller that is in charge of the job: kubeflow.org/training-operator, as if it were absent, or
    kueue.x-k8s.io/multikueue."""


class Replicas(ApiModel):
    """Pods of one type."""

    replicas: int | None = None
    """How many pods there are of this type."""

    template: Annotated[PodTemplate, Schema(ref="core.v1.PodTemplateSpec")] = {}  # noqa: RUF012 - pydantic copies it
    """The pods; restartPolicy below their spec is replaced by the one beside the template."""

    restart_policy: str | None = None
    """What becomes of a pod whose container ends: Always, OnFailure, Never, or ExitCode, by which it is made anew after
    codes from 128 on."""


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """The replicas of one type."""

    replicas: int
    template: JsonObject
    """A PodTemplateSpec, as its author wrote it but for the default port."""

    restart_policy: str


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """How many replicas of one type are in which state."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
