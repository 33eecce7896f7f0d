"""Which pods of a TrainJob are scheduled together by Kubernetes itself: `spec.scheduling` of runtimes (KEP-3015).

One level is used: the whole job, ReplicatedJobs, or each Job of a ReplicatedJob.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from trainmaster.runtime.api.meta import NAME, ApiModel, NullIsDefault, Schema

GANG: Final = "gang"
BASIC: Final = "basic"

MAX_GROUPS: Final = 8
"""Templates of groups that a Workload may have."""


class GangSchedulingPolicy(ApiModel):
    """All pods of the group are scheduled together, or none."""

    min_count: int | None = None
    """Must be absent: how many pods start together is computed."""


class BasicSchedulingPolicy(ApiModel):
    """Each pod of the group is scheduled by itself."""


class SchedulingPolicy(ApiModel):
    """How the pods of a group are scheduled; as a gang unless it says otherwise."""

    gang: GangSchedulingPolicy | None = None

    basic: BasicSchedulingPolicy | None = None


class TopologyConstraint(ApiModel):
    """Nodes on which all pods of a group have to be."""

    key: Annotated[str, NAME]
    """A label of nodes; all pods of the group are placed on nodes that have the same value of it."""


class SchedulingConstraints(ApiModel):
    """Where the pods of a group may be."""

    topology: Annotated[list[TopologyConstraint], NullIsDefault, Schema(list_type="atomic", maxItems=1)] = Field(
        default_factory=list
    )
    """At most one."""


class GroupScheduling(ApiModel):
    """What holds for one group of pods."""

    scheduling_policy: SchedulingPolicy | None = None

    scheduling_constraints: SchedulingConstraints | None = None

    disruption_mode: Annotated[str | None, Schema(enum=["Pod", "PodGroup"])] = None
    """Whether the scheduler preempts single pods of the group (Pod, the default) or all of them (PodGroup)."""

    @property
    def policy(self) -> str:
        """`gang` or `basic`."""
        return BASIC if self.scheduling_policy and self.scheduling_policy.basic is not None else GANG

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.scheduling_policy or self.scheduling_constraints or self.disruption_mode)


class ReplicatedJobScheduling(GroupScheduling):
    """Groups of one ReplicatedJob, or the group of several."""

    target_replicated_jobs: Annotated[
        list[Annotated[str, Schema(minLength=1, maxLength=63)]],
        NullIsDefault,
        Schema(required=True, list_type="set", minItems=1, maxItems=MAX_GROUPS),
    ] = Field(default_factory=list)
    """The ReplicatedJobs of the template that this is about; the pods of several are one group."""

    job: GroupScheduling | None = None
    """If present, each Job of the ReplicatedJob, for instance each slice of a trainer, is a group of its own, for which
    this holds."""


class Scheduling(GroupScheduling):
    """Scheduling of groups of pods by Kubernetes itself (Workload and PodGroup of scheduling.k8s.io).

    It takes the feature gate TrainJobWorkloadAwareScheduling. What stands here itself holds for all pods together, and
    excludes `replicatedJobs`.
    """

    replicated_jobs: Annotated[
        list[ReplicatedJobScheduling], NullIsDefault, Schema(list_type="atomic", maxItems=MAX_GROUPS)
    ] = Field(default_factory=list)
    """Groups by ReplicatedJob; if there are any, each ReplicatedJob is in one of them."""
