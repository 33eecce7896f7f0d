"""JobSet (JobSet API v1alpha2): a CRD for the embedded cluster, and the template inside of every runtime."""

from __future__ import annotations

from typing import Any, Final

from crds import schema
from crds.definitions import AGE, column, conditions, custom_resource
from crds.kubernetes import BATCH, CORE, definition
from crds.schema import Schema, immutable, rule

_IMMUTABLE: Final = immutable("Value is immutable")

_TARGETS: Final = "Names of the ReplicatedJobs that count; all of them when empty."

_REPLICATED_JOB: Final = schema.obj(
    {
        "name": schema.string("Name within the JobSet; part of the names of its Jobs."),
        "groupName": schema.string("Group of ReplicatedJobs that this one belongs to.", default="default"),
        "template": {
            **definition(f"{BATCH}.JobTemplateSpec"),
            "description": "The Job of which replicas are made.",
        },
        "replicas": schema.integer("How many Jobs are made.", default=1),
        "dependsOn": schema.map_list(
            schema.obj(
                {
                    "name": schema.string("Name of the ReplicatedJob to wait for; it stands further up in the list."),
                    "status": schema.string("What is waited for.", enum=("Ready", "Complete")),
                },
                required=("name", "status"),
            ),
            "ReplicatedJobs that have to be ready or complete before the Jobs of this one are created.",
            key="name",
            max_items=5,
            rules=[_IMMUTABLE],
        ),
    },
    "A Job template and how often it is instantiated.",
    required=("name", "template"),
)

_FAILURE_POLICY: Final = schema.obj(
    {
        "maxRestarts": schema.integer("How often the JobSet is restarted before it fails."),
        "restartStrategy": schema.string(
            "How Jobs are restarted: recreated one by one, recreated once all are gone, or restarted in place.",
            default="Recreate",
            enum=("Recreate", "BlockingRecreate", "InPlaceRestart"),
        ),
        "rules": schema.plain_list(
            schema.obj(
                {
                    "name": schema.string("Name of the rule."),
                    "action": schema.string(
                        "What happens when a failed Job matches.",
                        enum=(
                            "FailJobSet",
                            "RestartJobSet",
                            "RestartJobSetAndIgnoreMaxRestarts",
                            "RestartJob",
                            "RestartJobAndIgnoreMaxRestarts",
                        ),
                    ),
                    "onJobFailureReasons": schema.plain_list(
                        schema.string(), "Reasons of a Job's failure that match; any when empty."
                    ),
                    "onJobFailureMessagePatterns": schema.plain_list(
                        schema.string(), "Regular expressions, one of which the failure's message matches."
                    ),
                    "targetReplicatedJobs": schema.atomic_list(schema.string(), _TARGETS),
                },
                "What to do about certain failures.",
                required=("name", "action"),
            ),
            "Rules in the order in which they are tried; the first match decides.",
        ),
    },
    "What happens when a Job fails; without a policy the JobSet fails.",
    rules=[_IMMUTABLE],
)

_VOLUME_CLAIM_POLICY: Final = schema.obj(
    {
        "templates": schema.atomic_list(
            definition(f"{CORE}.PersistentVolumeClaim"),
            "Claims that are made once and mounted by volumes of the same name.",
            max_items=50,
        ),
        "retentionPolicy": schema.obj(
            {
                "whenDeleted": schema.string(
                    "Whether the claims go with the JobSet.", default="Delete", enum=("Delete", "Retain")
                )
            },
            "How long the claims live.",
        ),
    },
    "Volumes that all Jobs share.",
    required=("templates",),
    rules=[
        rule(
            "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
            "namespace cannot be set for VolumeClaimPolicies templates",
        )
    ],
)

JOBSET_SPEC: Final[Schema] = schema.obj(
    {
        "replicatedJobs": schema.map_list(_REPLICATED_JOB, "The groups of Jobs that make up the JobSet.", key="name"),
        "network": schema.obj(
            {
                "enableDNSHostnames": schema.boolean("Whether pods find each other by name."),
                "subdomain": schema.string("Name of the headless Service; the JobSet's own when empty."),
                "publishNotReadyAddresses": schema.boolean("Whether names of pods resolve before they are ready."),
            },
            "How the pods of the JobSet find each other.",
            rules=[_IMMUTABLE],
        ),
        "successPolicy": schema.obj(
            {
                "operator": schema.string("Whether all or any of the Jobs have to succeed.", enum=("All", "Any")),
                "targetReplicatedJobs": schema.atomic_list(schema.string(), _TARGETS),
            },
            "When the JobSet is complete.",
            required=("operator",),
            rules=[_IMMUTABLE],
        ),
        "failurePolicy": _FAILURE_POLICY,
        "startupPolicy": schema.obj(
            {
                "startupPolicyOrder": schema.string(
                    "Whether ReplicatedJobs start one after the other.", enum=("AnyOrder", "InOrder")
                )
            },
            "Order in which Jobs start; dependsOn says it more precisely.",
            required=("startupPolicyOrder",),
            rules=[_IMMUTABLE],
        ),
        "suspend": schema.boolean("Whether the Jobs are kept from running."),
        "coordinator": schema.obj(
            {
                "replicatedJob": schema.string("ReplicatedJob of the coordinator."),
                "jobIndex": schema.integer("Index of its Job.", format=None),
                "podIndex": schema.integer("Completion index of its pod.", format=None),
            },
            "The pod whose stable address all pods are labelled with.",
            required=("replicatedJob",),
        ),
        "managedBy": schema.string("The controller that is in charge; JobSet's own when empty."),
        "ttlSecondsAfterFinished": schema.integer("How long a finished JobSet is kept.", minimum=0),
        "volumeClaimPolicies": schema.atomic_list(
            _VOLUME_CLAIM_POLICY, "Volumes that are shared by Jobs.", max_items=50, rules=[_IMMUTABLE]
        ),
    },
    "What the JobSet consists of.",
    rules=[
        rule(
            "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
            " && self.replicatedJobs.exists(x, has(x.dependsOn)))",
            "StartupPolicy and DependsOn APIs are mutually exclusive",
        )
    ],
)

JOB_COUNTS: Final = {
    "ready": "Jobs whose pods are all ready or succeeded.",
    "succeeded": "Jobs that succeeded.",
    "failed": "Jobs that failed.",
    "active": "Jobs with at least one running or pending pod.",
    "suspended": "Jobs that are suspended.",
}
"""The states in which the Jobs of a ReplicatedJob are counted."""

_RESTARTS_OF_JOBS: Final = schema.atomic_list(schema.integer(), "Restarts by index of the Job.", max_items=1024)

_STATUS: Final = schema.obj(
    {
        "conditions": conditions("Whether the JobSet is suspended, has completed or has failed."),
        "restarts": schema.integer("How often the JobSet was restarted."),
        "restartsCountTowardsMax": schema.integer("How many of the restarts count towards maxRestarts."),
        "previousInPlaceRestartAttempt": schema.integer("Attempt before the current one in place.", minimum=0),
        "currentInPlaceRestartAttempt": schema.integer("Current attempt in place.", minimum=0),
        "terminalState": schema.string("Completed or Failed once the JobSet has finished."),
        "replicatedJobsStatus": schema.map_list(
            schema.obj(
                {
                    "name": schema.string("The ReplicatedJob."),
                    **{count: schema.integer(description) for count, description in JOB_COUNTS.items()},
                    "jobRestarts": _RESTARTS_OF_JOBS,
                    "jobRestartsCountTowardsMax": _RESTARTS_OF_JOBS,
                },
                "Numbers of Jobs by state.",
                required=("name", *JOB_COUNTS),
            ),
            "State of each ReplicatedJob.",
            key="name",
        ),
    },
    "What has been observed.",
)


def jobset() -> dict[str, Any]:
    """Return the definition of JobSet."""
    return custom_resource(
        group="jobset.x-k8s.io",
        version="v1alpha2",
        kind="JobSet",
        description="A group of Jobs that run and fail together.",
        properties={"spec": JOBSET_SPEC, "status": _STATUS},
        columns=[
            column("TerminalState", ".status.terminalState"),
            column("Restarts", ".status.restarts"),
            column("Completed", '.status.conditions[?(@.type=="Completed")].status'),
            column("Suspended", ".spec.suspend"),
            AGE,
        ],
    )
