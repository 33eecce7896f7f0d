"""Which pods of a TrainJob are scheduled together by Kubernetes itself: `spec.scheduling` of runtimes (KEP-3015).

One level is used: the whole job, ReplicatedJobs, or each Job of a ReplicatedJob.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from trainmaster.runtime.api.meta import NAME, SUBDOMAIN, ApiModel, NullIsDefault, Schema
from trainmaster.runtime.jsontree import JsonObject

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


_HAS_CLAIM: Final = "(has(self.resourceClaimName) && self.resourceClaimName != '')"
_HAS_TEMPLATE: Final = "(has(self.resourceClaimTemplateName) && self.resourceClaimTemplateName != '')"
ONE_SOURCE: Final = Schema(
    # The empty text is as good as nothing, although the field is there.
    (f"{_HAS_CLAIM} || {_HAS_TEMPLATE}", "one of resourceClaimName and resourceClaimTemplateName must be set"),
    (f"!({_HAS_CLAIM} && {_HAS_TEMPLATE})", "only one of resourceClaimName and resourceClaimTemplateName can be set"),
    description=None,
)


class PodResourceClaim(ApiModel):
    """Devices that pods claim: a claim that exists, or one made from a template."""

    __schema__: ClassVar[Schema] = ONE_SOURCE

    name: Annotated[str, Schema(minLength=1, maxLength=63)]
    """Name by which containers use the claim."""

    resource_claim_name: Annotated[str | None, Schema(maxLength=SUBDOMAIN)] = None
    """A ResourceClaim, which all nodes share."""

    resource_claim_template_name: Annotated[str | None, Schema(maxLength=SUBDOMAIN)] = None
    """A ResourceClaimTemplate, from which each node gets a claim of its own."""


def claim_entry(claim: PodResourceClaim) -> JsonObject:
    """Return a claim as `resourceClaims` of a pod or a PodGroup has it, without an empty source."""
    sources = {
        "resourceClaimName": claim.resource_claim_name,
        "resourceClaimTemplateName": claim.resource_claim_template_name,
    }
    return {"name": claim.name, **{field: name for field, name in sources.items() if name}}


class ClaimingGroupScheduling(GroupScheduling):
    """What holds for a group of pods of some ReplicatedJobs."""

    resource_claims: Annotated[
        list[
            Annotated[
                PodResourceClaim,
                Schema(
                    descriptions={
                        "resourceClaimName": "A ResourceClaim.",
                        "resourceClaimTemplateName": "A ResourceClaimTemplate, from which each group gets one claim.",
                    }
                ),
            ]
        ],
        NullIsDefault,
        Schema(keys=["name"], maxItems=4),
    ] = Field(default_factory=list)
    """Devices that the pods of a group share (feature gate DRAWorkloadResourceClaims of Kubernetes)."""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return super().is_empty and not self.resource_claims


class ReplicatedJobScheduling(ClaimingGroupScheduling):
    """Groups of one ReplicatedJob, or the group of several."""

    target_replicated_jobs: Annotated[
        list[Annotated[str, Schema(minLength=1, maxLength=63)]],
        NullIsDefault,
        Schema(required=True, list_type="set", minItems=1, maxItems=MAX_GROUPS),
    ] = Field(default_factory=list)
    """The ReplicatedJobs of the template that this is about; the pods of several are one group."""

    job: ClaimingGroupScheduling | None = None
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
