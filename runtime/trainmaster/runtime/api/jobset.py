"""JobSet (JobSet API v1alpha2): its definition, for the embedded cluster and as the template inside of every runtime.

Nothing is read with these models: while training runs, a JobSet is a JSON tree (`shapes`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from trainmaster.runtime.api import constants
from trainmaster.runtime.api.meta import AGE, ApiModel, Condition, Definition, Schema
from trainmaster.runtime.jsontree import JsonObject

_IMMUTABLE: Final = ("self == oldSelf", "Value is immutable")
_ATOMIC: Final = Schema(list_type="atomic")
_NOT_NEGATIVE: Final = Schema(minimum=0)


class _DependsOn(ApiModel):
    name: str
    """Name of the ReplicatedJob to wait for; it stands further up in the list."""
    status: Annotated[str, Schema(enum=["Ready", "Complete"])]
    """What is waited for."""


class ReplicatedJob(ApiModel):
    """A Job template and how often it is instantiated."""

    name: str
    """Name within the JobSet; part of the names of its Jobs."""
    group_name: str = "default"
    """Group of ReplicatedJobs that this one belongs to."""
    template: Annotated[JsonObject, Schema(ref="batch.v1.JobTemplateSpec")]
    """The Job of which replicas are made."""
    replicas: int = 1
    """How many Jobs are made."""
    depends_on: Annotated[list[_DependsOn] | None, Schema(_IMMUTABLE, keys=["name"], maxItems=5)] = None
    """ReplicatedJobs that have to be ready or complete before the Jobs of this one are created."""


class Network(ApiModel):
    """How the pods of the JobSet find each other."""

    enable_dns_hostnames: Annotated[bool | None, Field(alias="enableDNSHostnames")] = None
    """Whether pods find each other by name."""
    subdomain: str | None = None
    """Name of the headless Service; the JobSet's own when empty."""
    publish_not_ready_addresses: bool | None = None
    """Whether names of pods resolve before they are ready."""


class SuccessPolicy(ApiModel):
    """When the JobSet is complete."""

    operator: Annotated[str, Schema(enum=["All", "Any"])]
    """Whether all or any of the Jobs have to succeed."""
    target_replicated_jobs: Annotated[list[str] | None, _ATOMIC] = None
    """Names of the ReplicatedJobs that count; all of them when empty."""


class FailurePolicyRule(ApiModel):
    """What to do about certain failures."""

    name: str
    """Name of the rule."""
    action: Annotated[
        str,
        Schema(
            enum=[
                "FailJobSet",
                "RestartJobSet",
                "RestartJobSetAndIgnoreMaxRestarts",
                "RestartJob",
                "RestartJobAndIgnoreMaxRestarts",
            ]
        ),
    ]
    """What happens when a failed Job matches."""
    on_job_failure_reasons: list[str] | None = None
    """Reasons of a Job's failure that match; any when empty."""
    on_job_failure_message_patterns: list[str] | None = None
    """Regular expressions, one of which the failure's message matches."""
    target_replicated_jobs: Annotated[list[str] | None, _ATOMIC] = None
    """Names of the ReplicatedJobs that count; all of them when empty."""


class FailurePolicy(ApiModel):
    """What happens when a Job fails; without a policy the JobSet fails."""

    max_restarts: int | None = None
    """How often the JobSet is restarted before it fails."""
    restart_strategy: Annotated[str, Schema(enum=["Recreate", "BlockingRecreate", "InPlaceRestart"])] = "Recreate"
    """How Jobs are restarted: recreated one by one, recreated once all are gone, or restarted in place."""
    rules: list[FailurePolicyRule] | None = None
    """Rules in the order in which they are tried; the first match decides."""


class StartupPolicy(ApiModel):
    """Order in which Jobs start; dependsOn says it more precisely."""

    startup_policy_order: Annotated[str, Schema(enum=["AnyOrder", "InOrder"])]
    """Whether ReplicatedJobs start one after the other."""


class Coordinator(ApiModel):
    """The pod whose stable address all pods are labelled with."""

    replicated_job: str
    """ReplicatedJob of the coordinator."""
    job_index: Annotated[int | None, Schema(format=None)] = None
    """Index of its Job."""
    pod_index: Annotated[int | None, Schema(format=None)] = None
    """Completion index of its pod."""


class VolumeRetentionPolicy(ApiModel):
    """How long the claims live."""

    when_deleted: Annotated[str, Schema(enum=["Delete", "Retain"])] = "Delete"
    """Whether the claims go with the JobSet."""


class VolumeClaimPolicy(ApiModel):
    """Volumes that all Jobs share."""

    __schema__: ClassVar[Schema] = Schema(
        (
            "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
            "namespace cannot be set for VolumeClaimPolicies templates",
        )
    )

    templates: Annotated[
        list[Annotated[JsonObject, Schema(ref="core.v1.PersistentVolumeClaim")]],
        Schema(list_type="atomic", maxItems=50),
    ]
    """Claims that are made once and mounted by volumes of the same name."""
    retention_policy: VolumeRetentionPolicy | None = None


class JobSetSpec(ApiModel):
    """What the JobSet consists of."""

    __schema__: ClassVar[Schema] = Schema(
        (
            (
                "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
                " && self.replicatedJobs.exists(x, has(x.dependsOn)))"
            ),
            "StartupPolicy and DependsOn APIs are mutually exclusive",
        )
    )

    replicated_jobs: Annotated[list[ReplicatedJob] | None, Schema(keys=["name"])] = None
    """The groups of Jobs that make up the JobSet."""
    network: Annotated[Network | None, Schema(_IMMUTABLE)] = None
    success_policy: Annotated[SuccessPolicy | None, Schema(_IMMUTABLE)] = None
    failure_policy: Annotated[FailurePolicy | None, Schema(_IMMUTABLE)] = None
    startup_policy: Annotated[StartupPolicy | None, Schema(_IMMUTABLE)] = None
    suspend: bool | None = None
    """Whether the Jobs are kept from running."""
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    """The controller that is in charge; JobSet's own when empty."""
    ttl_seconds_after_finished: Annotated[int | None, _NOT_NEGATIVE] = None
    """How long a finished JobSet is kept."""
    volume_claim_policies: Annotated[
        list[VolumeClaimPolicy] | None, Schema(_IMMUTABLE, list_type="atomic", maxItems=50)
    ] = None
    """Volumes that are shared by Jobs."""


_RESTARTS_OF_JOBS: Final = Schema(list_type="atomic", maxItems=1024)


class ReplicatedJobStatus(ApiModel):
    """Numbers of Jobs by state."""

    name: str
    """The ReplicatedJob."""
    ready: int
    """Jobs whose pods are all ready or succeeded."""
    succeeded: int
    """Jobs that succeeded."""
    failed: int
    """Jobs that failed."""
    active: int
    """Jobs with at least one running or pending pod."""
    suspended: int
    """Jobs that are suspended."""
    job_restarts: Annotated[list[int] | None, _RESTARTS_OF_JOBS] = None
    """Restarts by index of the Job."""
    job_restarts_count_towards_max: Annotated[list[int] | None, _RESTARTS_OF_JOBS] = None
    """Restarts by index of the Job."""


class JobSetStatus(ApiModel):
    """What has been observed."""

    conditions: Annotated[list[Condition] | None, Schema(keys=["type"])] = None
    """Whether the JobSet is suspended, has completed or has failed."""
    restarts: int | None = None
    """How often the JobSet was restarted."""
    restarts_count_towards_max: int | None = None
    """How many of the restarts count towards maxRestarts."""
    previous_in_place_restart_attempt: Annotated[int | None, _NOT_NEGATIVE] = None
    """Attempt before the current one in place."""
    current_in_place_restart_attempt: Annotated[int | None, _NOT_NEGATIVE] = None
    """Current attempt in place."""
    terminal_state: str | None = None
    """Completed or Failed once the JobSet has finished."""
    replicated_jobs_status: Annotated[list[ReplicatedJobStatus] | None, Schema(keys=["name"])] = None
    """State of each ReplicatedJob."""


class JobSet(ApiModel):
    """A group of Jobs that run and fail together."""

    __definition__: ClassVar[Definition] = Definition(
        constants.JOBSET_GROUP,
        constants.JOBSET_VERSION,
        columns=(
            ("TerminalState", ".status.terminalState"),
            ("Restarts", ".status.restarts"),
            ("Completed", '.status.conditions[?(@.type=="Completed")].status'),
            ("Suspended", ".spec.suspend"),
            AGE,
        ),
    )

    spec: JobSetSpec | None = None
    status: JobSetStatus | None = None
