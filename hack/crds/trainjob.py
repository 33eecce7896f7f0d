"""TrainJob (Trainer API v1alpha1)."""

from __future__ import annotations

from typing import Any, Final

from crds import schema
from crds.definitions import AGE, column, conditions, custom_resource
from crds.jobset import JOB_COUNTS
from crds.kubernetes import CORE, META, definition, field
from crds.schema import SUBDOMAIN_LENGTH, Schema, immutable, rule
from trainmaster.runtime.api import constants

_ARGUMENT: Final = schema.string(length=(0, 1 << 20))
_METADATA: Final = definition(f"{META}.ObjectMeta")


def _env(description: str | None = None) -> Schema:
    return schema.map_list(definition(f"{CORE}.EnvVar"), description, key="name", max_items=128)


def _initializer_source(what: str) -> Schema:
    return schema.obj(
        {
            "storageUri": schema.string(
                f"Where the {what} is: scheme://path.",
                length=(0, 2048),
                rules=[
                    rule(
                        "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')",
                        "storageUri may be empty, or it must be a valid URI (scheme://...)",
                    )
                ],
            ),
            "env": _env("Variables of the initializer's container."),
            "secretRef": {
                **definition(f"{CORE}.LocalObjectReference"),
                "description": "Secret of the namespace whose keys become variables of the initializer's container.",
            },
        },
        f"How the {what} is fetched.",
    )


_HAS_CLAIM: Final = "(has(self.resourceClaimName) && self.resourceClaimName != '')"
_HAS_TEMPLATE: Final = "(has(self.resourceClaimTemplateName) && self.resourceClaimTemplateName != '')"
_ONE_SOURCE: Final = [
    # The empty text is as good as nothing, although the field is there.
    rule(f"{_HAS_CLAIM} || {_HAS_TEMPLATE}", "one of resourceClaimName and resourceClaimTemplateName must be set"),
    rule(
        f"!({_HAS_CLAIM} && {_HAS_TEMPLATE})", "only one of resourceClaimName and resourceClaimTemplateName can be set"
    ),
]
_CLAIM: Final = {
    "resourceClaimName": schema.string("A ResourceClaim, which all nodes share.", length=(0, SUBDOMAIN_LENGTH)),
    "resourceClaimTemplateName": schema.string(
        "A ResourceClaimTemplate, from which each node gets a claim of its own.", length=(0, SUBDOMAIN_LENGTH)
    ),
}
_CLAIM_NAME: Final = schema.string("Name by which containers use the claim.", length=(1, 63))

_TRAINER: Final = schema.obj(
    {
        "image": schema.string("Image of the training container.", length=(0, 500)),
        "command": schema.atomic_list(_ARGUMENT, "Entry point of the training container.", max_items=128),
        "args": schema.atomic_list(_ARGUMENT, "Arguments of the entry point.", max_items=128),
        "env": _env("Variables of the training container; they win over those of the runtime."),
        "numNodes": schema.integer("How many nodes train.", minimum=0),
        "resourcesPerNode": {
            **definition(f"{CORE}.ResourceRequirements"),
            "description": "Resources of the training container on each node.",
        },
        "resourceClaimsPerNode": schema.map_list(
            schema.obj(
                {
                    "name": _CLAIM_NAME,
                    **_CLAIM,
                    "containerNames": schema.set_list(
                        schema.string(length=(1, 63)),
                        "Containers that use the claim; if there are none, the training container.",
                        max_items=8,
                    ),
                },
                required=("name",),
                rules=_ONE_SOURCE,
            ),
            "Devices that each node claims (dynamic resource allocation).",
            key="name",
            max_items=32,
        ),
        "numProcPerNode": schema.integer(
            "How many processes train on each node.",
            rules=[rule("self >= 1", "numProcPerNode must be greater than or equal to 1")],
        ),
    },
    "The training itself; what is absent comes from the runtime.",
    rules=[immutable()],
)


def _pod_field(name: str, **limits: int) -> Schema:
    return {**field(f"{CORE}.PodSpec", name), **limits}


def _fixed_pod_field(name: str, **limits: int) -> Schema:
    return {**_pod_field(name, **limits), "x-kubernetes-validations": [immutable()]}


def _containers_patch(description: str) -> Schema:
    container = f"{CORE}.Container"
    patch = schema.obj(
        {
            "name": schema.name("The container to patch."),
            "env": _env("Variables to set or add."),
            # Published keyed by name: unlike in a pod, a volume can be mounted only once here.
            "volumeMounts": schema.map_list(
                definition(f"{CORE}.VolumeMount"), "Mounts to set or add.", key="name", max_items=128
            ),
            "securityContext": field(container, "securityContext"),
        },
        required=("name",),
    )
    return schema.map_list(patch, description, key="name", max_items=64, rules=[immutable()])


_POD_SPEC_PATCH: Final = schema.obj(
    {
        "serviceAccountName": _fixed_pod_field("serviceAccountName", maxLength=SUBDOMAIN_LENGTH),
        "nodeSelector": schema.mapping(schema.string()),
        "affinity": _pod_field("affinity"),
        "tolerations": _pod_field("tolerations", maxItems=128),
        "volumes": _fixed_pod_field("volumes", maxItems=128),
        "initContainers": _containers_patch("Init containers to patch."),
        "containers": _containers_patch("Containers to patch."),
        "imagePullSecrets": _fixed_pod_field("imagePullSecrets", maxItems=64),
        "securityContext": _fixed_pod_field("securityContext"),
        "resourceClaims": schema.map_list(
            schema.obj({"name": _CLAIM_NAME, **_CLAIM}, required=("name",), rules=_ONE_SOURCE),
            "Claims to set or add; one replaces that of the same name. What containers use is up to the runtime.",
            key="name",
            max_items=32,
        ),
        "schedulingGates": _pod_field("schedulingGates", maxItems=16),
        "terminationGracePeriodSeconds": _fixed_pod_field("terminationGracePeriodSeconds", minimum=0),
    },
    "Changes to the pods: the only fields of a pod that can be patched.",
)

_REPLICATED_JOB_PATCH: Final = schema.obj(
    {
        "name": schema.name("The ReplicatedJob to patch."),
        "template": schema.obj(
            {
                "metadata": _METADATA,
                "spec": schema.obj(
                    {
                        "template": schema.obj(
                            {"metadata": _METADATA, "spec": _POD_SPEC_PATCH}, "Changes to the pod template."
                        )
                    },
                    "Changes to the spec of the Jobs.",
                ),
            },
            "Changes to the Job template.",
        ),
    },
    required=("name",),
)

_RUNTIME_PATCH: Final = schema.obj(
    {
        "manager": schema.name("Who asks for the changes, for instance kueue.x-k8s.io/manager.", rules=[immutable()]),
        "time": schema.time("When the changes were last made; set by the admission webhook."),
        "trainingRuntimeSpec": schema.obj(
            {
                "template": schema.obj(
                    {
                        "metadata": _METADATA,
                        "spec": schema.obj(
                            {
                                "replicatedJobs": schema.map_list(
                                    _REPLICATED_JOB_PATCH, "ReplicatedJobs to patch.", key="name", max_items=100
                                )
                            },
                            "Changes to the spec of the JobSet.",
                        ),
                    },
                    "Changes to the JobSet template.",
                )
            },
            "Changes to the runtime, as it applies to this TrainJob.",
        ),
    },
    "Changes to the runtime on behalf of one manager.",
    required=("manager",),
)

TRAINJOB_SPEC: Final = schema.obj(
    {
        "runtimeRef": schema.obj(
            {
                "name": schema.name("Name of the runtime."),
                "apiGroup": schema.string(
                    "Group of the runtime.", default=constants.GROUP, length=(0, SUBDOMAIN_LENGTH)
                ),
                "kind": schema.string(
                    "TrainingRuntime (of the same namespace) or ClusterTrainingRuntime.",
                    default=constants.CLUSTER_TRAINING_RUNTIME_KIND,
                    length=(0, SUBDOMAIN_LENGTH),
                ),
            },
            "The runtime that the job is made from, as it is when the job starts.",
            required=("name",),
            rules=[immutable()],
        ),
        "initializer": schema.obj(
            {"dataset": _initializer_source("dataset"), "model": _initializer_source("model")},
            "What is fetched before the training starts.",
            rules=[immutable()],
        ),
        "trainer": _TRAINER,
        "runtimePatches": schema.map_list(
            _RUNTIME_PATCH,
            "Changes to the runtime for this job only, applied one after the other.",
            key="manager",
            max_items=16,
        ),
        "suspend": schema.boolean("Whether the job is kept from running.", default=False),
        "activeDeadlineSeconds": schema.integer(
            "How long the job may run before it is stopped and fails.",
            minimum=1,
            format="int64",
            rules=[immutable()],
        ),
        "ttlSecondsAfterFinished": schema.integer(
            "How long the job is kept after its end; if absent, as long as its runtime says, or for ever.", minimum=0
        ),
        "managedBy": schema.string(
            "The controller that is in charge of the job.",
            default=constants.MANAGED_BY_TRAINER,
            length=(0, SUBDOMAIN_LENGTH),
            rules=[
                rule(
                    f"self in ['{constants.MANAGED_BY_TRAINER}', '{constants.MANAGED_BY_MULTIKUEUE}']",
                    f"ManagedBy must be {constants.MANAGED_BY_TRAINER} or {constants.MANAGED_BY_MULTIKUEUE} if set",
                ),
                immutable(),
            ],
        ),
    },
    "What to train, and on which runtime.",
    required=("runtimeRef",),
)

_JOB_STATUS: Final = schema.obj(
    {
        "name": schema.name("The ReplicatedJob."),
        **{count: schema.integer(description, minimum=0) for count, description in JOB_COUNTS.items()},
    },
    "Numbers of Jobs by state.",
    required=("name", *JOB_COUNTS),
)

_TRAINER_STATUS: Final = schema.obj(
    {
        "progressPercentage": schema.integer("How much of the training is done.", minimum=0, maximum=100),
        "estimatedRemainingSeconds": schema.integer("How long it will take.", minimum=0),
        "metrics": schema.atomic_list(
            schema.obj(
                {
                    "name": schema.string("What was measured.", length=(1, 64)),
                    "value": schema.string("The number, as text.", length=(1, 64)),
                },
                required=("name", "value"),
            ),
            "Latest values of what the training measures, for instance its loss.",
            max_items=256,
        ),
        "lastUpdatedTime": schema.time("When the training reported this."),
    },
    "What the training reported about itself.",
    rules=[rule("has(self.lastUpdatedTime)", "lastUpdatedTime is required when trainerStatus is present")],
)

_STATUS: Final = schema.obj(
    {
        "conditions": conditions("Whether the job is suspended, is complete or has failed.", max_items=8),
        "jobsStatus": schema.map_list(_JOB_STATUS, "State of each ReplicatedJob.", key="name", max_items=100),
        "trainerStatus": _TRAINER_STATUS,
        "runtimeSnapshotDigest": schema.string(
            "Digest of the runtime snapshot that the job is built from; another one is not used.", length=(1, 128)
        ),
    },
    "What has been observed.",
    min_properties=1,
)


def train_job() -> dict[str, Any]:
    """Return the definition of TrainJob."""
    return custom_resource(
        group=constants.GROUP,
        version=constants.VERSION,
        kind=constants.TRAINJOB_KIND,
        description="A training job: what to train, and on which runtime.",
        properties={"spec": TRAINJOB_SPEC, "status": _STATUS},
        columns=[
            # What holds now; a resumed job is not suspended any more, whatever its last condition is about.
            column("State", '.status.conditions[?(@.status=="True")].type'),
            column("Active", ".status.jobsStatus[?(@.active>0)].name"),
            AGE,
        ],
        rules=[
            rule(
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "metadata.name must match RFC 1035 DNS label format",
            ),
            rule("size(self.metadata.name) <= 63", "metadata.name must be no more than 63 characters"),
        ],
    )
