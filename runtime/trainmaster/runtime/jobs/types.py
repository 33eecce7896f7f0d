"""The parts of a training job of `kubeflow.org/v1` that all kinds have.

The objects are shared and never changed; templates are plain JSON, and whoever changes one takes a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from trainmaster.runtime.api.meta import ApiModel, NullIsDefault
from trainmaster.runtime.jobs.constants import CLEAN_NONE, MANAGED_BY_TRAINING_OPERATOR
from trainmaster.runtime.jsontree import JsonObject


class SchedulingPolicy(ApiModel):
    """What a gang scheduler is told about a job."""

    min_available: int | None = None
    queue: Annotated[str, NullIsDefault] = ""
    min_resources: dict[str, str | int | float] | None = None
    priority_class: Annotated[str, NullIsDefault] = ""
    schedule_timeout_seconds: int | None = None


class RunPolicy(ApiModel):
    """How a job runs and ends, whatever its kind."""

    clean_pod_policy: Annotated[str, NullIsDefault] = CLEAN_NONE
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    scheduling_policy: Annotated[SchedulingPolicy, NullIsDefault] = SchedulingPolicy()
    suspend: Annotated[bool, NullIsDefault] = False
    managed_by: Annotated[str, NullIsDefault] = MANAGED_BY_TRAINING_OPERATOR


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
