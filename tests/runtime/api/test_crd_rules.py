"""The rules (CEL) of the custom resource definitions."""

from __future__ import annotations

import pytest
from support.crds import JOB_KINDS, KINDS, POD_PATCH, nodes, root_of, rules_at

pytestmark = pytest.mark.nightly

IMMUTABLE = [("self == oldSelf", "field is immutable")]
VALUE_IMMUTABLE = [("self == oldSelf", "Value is immutable")]
URI_RULE = [
    (
        "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')",
        "storageUri may be empty, or it must be a valid URI (scheme://...)",
    )
]
CLAIM, TEMPLATE = (
    f"(has(self.{field}) && self.{field} != '')" for field in ("resourceClaimName", "resourceClaimTemplateName")
)
ONE_SOURCE = [
    (f"{CLAIM} || {TEMPLATE}", "one of resourceClaimName and resourceClaimTemplateName must be set"),
    (f"!({CLAIM} && {TEMPLATE})", "only one of resourceClaimName and resourceClaimTemplateName can be set"),
]
JOBSET_RULES = {
    "": [
        (
            (
                "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
                " && self.replicatedJobs.exists(x, has(x.dependsOn)))"
            ),
            "StartupPolicy and DependsOn APIs are mutually exclusive",
        )
    ],
    ".failurePolicy": VALUE_IMMUTABLE,
    ".network": VALUE_IMMUTABLE,
    ".replicatedJobs[].dependsOn": VALUE_IMMUTABLE,
    ".startupPolicy": VALUE_IMMUTABLE,
    ".successPolicy": VALUE_IMMUTABLE,
    ".volumeClaimPolicies": VALUE_IMMUTABLE,
    ".volumeClaimPolicies[]": [
        (
            "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
            "namespace cannot be set for VolumeClaimPolicies templates",
        )
    ],
}
RUNTIME_RULES = {
    "spec.mlPolicy": [
        (
            (
                "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux), has(self.custom)]"
                ".filter(x, x).size() <= 1"
            ),
            "Only one of the policy can be configured",
        )
    ],
    "spec.podGroupPolicy": [
        (
            "!has(self.custom) || !(has(self.coscheduling) || has(self.volcano))",
            "Only one of the policy can be configured",
        )
    ],
    "spec.mlPolicy.flux.numProcPerNode": [("self >= 1", "NumProcPerNode in fluxPolicy must be >= 1")],
    "spec.mlPolicy.mpi.numProcPerNode": [("self >= 1", "NumProcPerNode in mpiPolicy must be >= 1")],
    "spec.mlPolicy.torch.numProcPerNode": [
        (
            "type(self) == int ? self >= 1 : self in ['auto', 'cpu', 'gpu']",
            "NumProcPerNode in torchPolicy must be auto, cpu, gpu or an integer >= 1",
        )
    ],
    "spec.mlPolicy.torch.envInjection.targets[].containerNames": [
        (
            "!self.exists(c, c == 'node')",
            "containerNames must not include the main node container because PET_* envs are always injected into it",
        )
    ],
    **{f"spec.template.spec{path}": rules for path, rules in JOBSET_RULES.items()},
}
TRAINJOB_RULES = {
    "": [
        (
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name must match RFC 1035 DNS label format",
        ),
        ("size(self.metadata.name) <= 63", "metadata.name must be no more than 63 characters"),
    ],
    "spec.activeDeadlineSeconds": IMMUTABLE,
    "spec.initializer": IMMUTABLE,
    "spec.initializer.dataset.storageUri": URI_RULE,
    "spec.initializer.model.storageUri": URI_RULE,
    "spec.managedBy": [
        (
            "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']",
            "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set",
        ),
        *IMMUTABLE,
    ],
    "spec.runtimePatches[].manager": IMMUTABLE,
    **{
        f"{POD_PATCH}.{field}": IMMUTABLE
        for field in (
            "containers", "imagePullSecrets", "initContainers", "securityContext", "serviceAccountName",
            "terminationGracePeriodSeconds", "volumes",
        )
    },
    f"{POD_PATCH}.resourceClaims[]": ONE_SOURCE,
    "spec.runtimeRef": IMMUTABLE,
    "spec.trainer": IMMUTABLE,
    "spec.trainer.resourceClaimsPerNode[]": ONE_SOURCE,
    "spec.trainer.numProcPerNode": [("self >= 1", "numProcPerNode must be greater than or equal to 1")],
    "status.trainerStatus": [
        ("has(self.lastUpdatedTime)", "lastUpdatedTime is required when trainerStatus is present")
    ],
}  # fmt: skip
ORDERED = ("double(self.min) < double(self.max)", "min must be strictly less than max")
OPTIMIZATION_RULES = {
    "spec": [
        ("self == oldSelf", "OptimizationJobSpec is immutable and cannot be updated after creation"),
        ("self.parallelTrials <= self.numTrials", "parallelTrials cannot exceed numTrials"),
        (
            "!has(self.searchAlgorithm.grid) || self.parameters.all(p, has(p.searchSpace.categorical))",
            "Grid search requires all parameters to be Categorical; Uniform and LogUniform are not supported.",
        ),
    ],
    "spec.searchAlgorithm": [
        (
            "[has(self.random),has(self.grid)].filter(x,x==true).size() == 1",
            "exactly one of the fields in [random grid] must be set",
        )
    ],
    "spec.parameters[].searchSpace": [
        (
            "[has(self.uniform),has(self.logUniform),has(self.categorical)].filter(x,x==true).size() == 1",
            "exactly one of the fields in [uniform logUniform categorical] must be set",
        )
    ],
    "spec.parameters[].searchSpace.uniform": [ORDERED],
    "spec.parameters[].searchSpace.logUniform": [
        ("double(self.min) > 0.0", "min must be strictly greater than 0"),
        ORDERED,
    ],
    "spec.trainJobTemplate.metadata": [
        ("!has(self.name) && !has(self.namespace)", "name and namespace cannot be set in a template.")
    ],
    **{f"spec.trainJobTemplate.{path}": rules for path, rules in TRAINJOB_RULES.items() if path.startswith("spec.")},
}
QUEUE = "spec.runPolicy.schedulingPolicy.queue"
RULES = {
    "TrainJob": TRAINJOB_RULES,
    "OptimizationJob": OPTIMIZATION_RULES,
    "TrainingRuntime": RUNTIME_RULES,
    "ClusterTrainingRuntime": RUNTIME_RULES,
    "JobSet": {f"spec{path}": rules for path, rules in JOBSET_RULES.items()},
    **{kind: {QUEUE: [("self == oldSelf", f"{QUEUE} is immutable")]} for kind in JOB_KINDS},
}


@pytest.mark.parametrize("kind", KINDS)
def test_rules(kind: str) -> None:
    """Messages of rules are what users and their tools see, so they are part of the API."""
    found = {path: rules_at(kind, path) for path, node in nodes(root_of(kind)) if "x-kubernetes-validations" in node}
    assert found == RULES[kind]
