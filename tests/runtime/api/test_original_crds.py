"""Our definitions are those of the originals: each field with its type, limits, rules and defaults.

They differ in what is listed here, so a limit of Kubeflow Trainer v2.3.0 or Training Operator v1.9 need not be tested
by itself. The schema of JobSets is that of the runtimes' `spec.template.spec` (`test_crds`).
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.original_crds import (
    JOB_KINDS,
    POD_PATCH,
    definition,
    nodes,
    original_definitions,
    original_job_definitions,
    original_root_of,
    root_of,
)

ORIGINALS = original_definitions() | original_job_definitions()
RUNTIME_KINDS = ["ClusterTrainingRuntime", "TrainingRuntime"]
ALL = pytest.mark.parametrize("kind", ORIGINALS)

INLINED = re.compile(
    r"\.(envFrom\[\]\.(configMap|secret)Ref|volumes\[\](\.projected\.sources\[\])?\.(configMap|secret))$"
)
"""Places where the original's generator takes over that a reference to an object is written as a whole, though more
stands beside the name; pods have it otherwise."""

PODS = re.compile(
    r"(\.template\.spec|volumeClaimPolicies\[\]\.templates\[\])\.([\w.\[\]]+\.)?(bindMountOptions(\[\])?|defaultUser"
    r"|evictionResponders(\[\](\.\w+)?)?|healthStatus(\.[\w.\[\]]+)?|mode|protocol|user|scheduling(\.[\w.\[\]]+)?)$"
)
"""What pods, Jobs and claims of newer versions of Kubernetes have."""


def rule(text: str, message: str) -> dict[str, str]:
    return {"rule": text, "message": message}


ONE_POLICY = "Only one of the policy can be configured"
OTHERWISE: dict[str, dict[str, Any]] = {
    "spec.trainer.numNodes": {"minimum": 0},
    "spec.trainer.numProcPerNode": {
        "x-kubernetes-validations": [rule("self >= 1", "numProcPerNode must be greater than or equal to 1")]
    },
    "spec.mlPolicy": {
        "x-kubernetes-validations": [
            rule(
                "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux), has(self.custom)]"
                ".filter(x, x).size() <= 1",
                ONE_POLICY,
            )
        ]
    },
    "spec.podGroupPolicy": {
        "x-kubernetes-validations": [
            rule("!has(self.custom) || !(has(self.coscheduling) || has(self.volcano))", ONE_POLICY)
        ]
    },
    "spec.mlPolicy.mpi.mpiImplementation": {"enum": ["OpenMPI", "IntelMPI", "MPICH", ""]},
    "spec.mlPolicy.mpi.numProcPerNode": {
        "x-kubernetes-validations": [rule("self >= 1", "NumProcPerNode in mpiPolicy must be >= 1")]
    },
    "spec.template.spec.volumeClaimPolicies[]": {"required": ["templates"]},
}
"""What ours says of fields that both have, where the original says it otherwise or not at all."""

CLAIM, TEMPLATE = (
    f"(has(self.{field}) && self.{field} != '')" for field in ("resourceClaimName", "resourceClaimTemplateName")
)
CLAIMS: dict[str, dict[str, Any]] = {
    "": {"type": "array", "maxItems": 32, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    "[]": {
        "type": "object",
        "required": ["name"],
        "x-kubernetes-validations": [
            rule(f"{CLAIM} || {TEMPLATE}", "one of resourceClaimName and resourceClaimTemplateName must be set"),
            rule(f"!({CLAIM} && {TEMPLATE})", "only one of resourceClaimName and resourceClaimTemplateName can be set"),
        ],
    },
    "[].name": {"type": "string", "minLength": 1, "maxLength": 63},
    "[].resourceClaimName": {"type": "string", "maxLength": 253},
    "[].resourceClaimTemplateName": {"type": "string", "maxLength": 253},
}
SECONDS = {"type": "integer", "format": "int32", "minimum": 0}
CUSTOM: dict[str, dict[str, Any]] = {
    "": {"type": "object", "required": ["name"]},
    ".name": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[A-Za-z0-9_.-]+$"},
    # Plugins say what may be in there, and nobody else.
    ".config": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
NEW_IN_RUNTIMES: dict[str, dict[str, Any]] = {
    **{
        f"spec.{policy}.custom{path}": node
        for policy in ("mlPolicy", "podGroupPolicy")
        for path, node in CUSTOM.items()
    },
    "spec.mlPolicy.torch.numProcPerNode": {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-validations": [
            rule(
                "type(self) == int ? self >= 1 : self in ['auto', 'cpu', 'gpu']",
                "NumProcPerNode in torchPolicy must be auto, cpu, gpu or an integer >= 1",
            )
        ],
    },
    "spec.runPolicy": {"type": "object"},
    "spec.runPolicy.ttlSecondsAfterFinished": SECONDS,
}
COUNTED: dict[str, dict[str, Any]] = {
    "status.replicaStatuses{}.restarts": {"type": "integer", "format": "int32"},
    "status.replicaStatuses{}.restartedPodUIDs": {"type": "array", "x-kubernetes-list-type": "atomic"},
    "status.replicaStatuses{}.restartedPodUIDs[]": {"type": "string"},
}
NEW: dict[str, dict[str, dict[str, Any]]] = {
    "TrainJob": {
        **{f"spec.trainer.resourceClaimsPerNode{path}": node for path, node in CLAIMS.items()},
        "spec.trainer.resourceClaimsPerNode[].containerNames": {
            "type": "array",
            "maxItems": 8,
            "x-kubernetes-list-type": "set",
        },
        "spec.trainer.resourceClaimsPerNode[].containerNames[]": {"type": "string", "minLength": 1, "maxLength": 63},
        **{f"{POD_PATCH}.resourceClaims{path}": node for path, node in CLAIMS.items()},
        "spec.ttlSecondsAfterFinished": SECONDS,
        "status.runtimeSnapshotDigest": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    **dict.fromkeys(RUNTIME_KINDS, NEW_IN_RUNTIMES),
    **dict.fromkeys(JOB_KINDS, COUNTED),
}
"""The fields that ours alone has, but for those of pods."""

_BELOW = {"additionalProperties", "description", "items", "properties"}


def said(node: dict[str, Any]) -> dict[str, Any]:
    """What a schema says of a value itself."""
    kept = {keyword: value for keyword, value in node.items() if keyword not in _BELOW}
    return kept | ({"required": sorted(kept["required"])} if "required" in kept else {})


@ALL
def test_a_definition_is_the_original_but_for_its_schema_and_the_columns_of_trainjobs(kind: str) -> None:
    ours, original = definition(kind), ORIGINALS[kind]
    # The generator of Kubeflow Trainer writes its version into an annotation.
    theirs = original["metadata"] if kind in JOB_KINDS else {"name": original["metadata"]["name"]}
    assert ours["metadata"] == theirs
    [version], [original_version] = ours["spec"]["versions"], original["spec"]["versions"]
    assert ours["spec"] | {"versions": []} == original["spec"] | {"versions": []}
    own: dict[str, Any] = {"schema": {}} if kind != "TrainJob" else {"schema": {}, "additionalPrinterColumns": []}
    assert version | own == original_version | own


@ALL
def test_every_field_of_the_original_is_there_with_its_type_and_its_rules(kind: str) -> None:
    ours, original = dict(nodes(root_of(kind))), dict(nodes(original_root_of(kind)))
    assert not original.keys() - ours.keys()
    otherwise = {path: change for path, change in OTHERWISE.items() if path in original}
    for path, node in original.items():
        theirs, mine = said(node), said(ours[path])
        if INLINED.search(path) and theirs != mine:
            mine["x-kubernetes-map-type"] = "atomic"
        assert mine == theirs | otherwise.pop(path, {}), path
    assert not otherwise


@ALL
def test_these_fields_are_new(kind: str) -> None:
    ours = dict(nodes(root_of(kind)))
    new = {path: said(ours[path]) for path in ours.keys() - dict(nodes(original_root_of(kind))).keys()}
    assert {path: node for path, node in new.items() if path in NEW[kind] or not PODS.search(path)} == NEW[kind]
