"""The custom resource definitions: made from the models, those of the originals, acceptable to an API server.

They differ in what is listed here, so a limit of Kubeflow Trainer v2.3.0 or Training Operator v1.9 need not be tested
by itself. The schema of JobSets is that of the runtimes' `spec.template.spec` (`test_crds`).
"""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from support.original_crds import (
    JOB_KINDS,
    KINDS,
    POD_PATCH,
    ROOT,
    at,
    definition,
    nodes,
    original_definitions,
    original_job_definitions,
    original_root_of,
    root_of,
)

from trainmaster.runtime.api.trainingruntime import MLPolicy
from trainmaster.runtime.framework.framework import FRAMEWORKS


@pytest.mark.nightly
def test_files_are_generated() -> None:
    """Editing a CRD by hand, or a model without generating, would be lost or forgotten."""
    pytest.importorskip("kubernetes_validate")
    command = [sys.executable, str(ROOT / "hack/generate_crds.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", KINDS)
def test_embedded_metadata_keeps_what_has_a_meaning(kind: str) -> None:
    """A template's metadata has no uid or owner; the object's own metadata is the API server's business."""
    kept = {"annotations", "finalizers", "labels", "name", "namespace"}
    embedded = [node for path, node in nodes(root_of(kind)) if path.endswith(".metadata")]
    assert embedded
    assert all(set(node["properties"]) == kept for node in embedded)
    assert root_of(kind)["properties"]["metadata"] == {"type": "object"}


@pytest.mark.parametrize(
    ("kind", "plural", "version"),
    [("OptimizationJob", "optimizationjobs", "v1alpha1"), ("JobSet", "jobsets", "v1alpha2")],
)
def test_frame(kind: str, plural: str, version: str) -> None:
    crd = definition(kind)
    spec = crd["spec"]
    [served] = spec["versions"]
    assert crd["metadata"] == {"name": f"{plural}.{spec['group']}"}
    assert spec["scope"] == "Namespaced"
    assert spec["names"] == {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    assert (served["name"], served["served"], served["storage"]) == (version, True, True)
    assert served["subresources"] == {"status": {}}


def test_columns() -> None:
    def columns(kind: str) -> list[tuple[str, str, str]]:
        [served] = definition(kind)["spec"]["versions"]
        return [(c["name"], c["type"], c["jsonPath"]) for c in served.get("additionalPrinterColumns", [])]

    age = ("Age", "date", ".metadata.creationTimestamp")
    assert columns("TrainJob") == [
        ("State", "string", '.status.conditions[?(@.status=="True")].type'),
        ("Active", "string", ".status.jobsStatus[?(@.active>0)].name"),
        age,
    ]
    assert columns("OptimizationJob") == []
    assert columns("JobSet") == [
        ("TerminalState", "string", ".status.terminalState"),
        ("Restarts", "string", ".status.restarts"),
        ("Completed", "string", '.status.conditions[?(@.type=="Completed")].status'),
        ("Suspended", "string", ".spec.suspend"),
        age,
    ]


def test_both_runtimes_and_jobset_share_their_schema() -> None:
    assert at("TrainingRuntime", "spec") == at("ClusterTrainingRuntime", "spec")
    assert at("TrainingRuntime", "spec.template.spec") == at("JobSet", "spec")
    assert at("JobSet", "status.replicatedJobsStatus")["x-kubernetes-list-map-keys"] == ["name"]
    assert at("JobSet", "status.restarts")["type"] == "integer"


def test_pod_fields_are_not_explained_again() -> None:
    """`kubectl explain pod` does that, and the texts would triple the size of the CRDs."""
    template = at("JobSet", "spec.replicatedJobs[].template")
    assert [path for path, node in nodes(template) if "description" in node] == [""]
    assert all(node["description"] for node in root_of("JobSet")["properties"]["spec"]["properties"].values())


REPLICA_SPECS = {
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}
ANNOTATIONS = 256 * 1024
"""What the annotations of an object may hold in all, one of which is the object itself when kubectl applies it."""


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_a_client_side_apply_can_keep_it_in_an_annotation(kind: str) -> None:
    """kubectl writes the whole object into one of its annotations; the original's own definitions do not fit."""
    assert len(json.dumps(definition(kind), separators=(",", ":"))) < ANNOTATIONS / 3


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_every_field_but_those_of_pods_is_explained(kind: str) -> None:
    """`kubectl explain pod` explains those; the texts would treble the size."""
    elsewhere = (
        f"spec.{REPLICA_SPECS[kind]}{{}}.template.",
        "spec.elasticPolicy.metrics[]",
        "status.replicaStatuses{}.l",
    )
    unexplained = [
        path
        for path, node in nodes(root_of(kind))
        if "description" not in node
        and not path.startswith(elsewhere)
        and path != "metadata"
        and path[-2:] not in "[]{}"
    ]
    assert unexplained == []
    template = at(kind, f"spec.{REPLICA_SPECS[kind]}{{}}.template")
    assert [path for path, node in nodes(template) if "description" in node] == [""]


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


SCALE = {
    "specReplicasPath": ".spec.trainer.numNodes",
    "statusReplicasPath": ".status.resilience.nodes",
    "labelSelectorPath": ".status.resilience.selector",
}
ONE_POLICY = "Only one of the policy can be configured"
OTHERWISE: dict[str, dict[str, Any]] = {
    # Whether the number of nodes may change depends on the runtime: webhooks judge it.
    "spec.trainer": {
        "x-kubernetes-validations": [
            rule(
                " && ".join(
                    f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
                    for name in (
                        "image",
                        "command",
                        "args",
                        "env",
                        "resourcesPerNode",
                        "resourceClaimsPerNode",
                        "numProcPerNode",
                        "elasticPolicy",
                    )
                ),
                "field is immutable",
            )
        ]
    },
    "spec.trainer.numNodes": {
        "minimum": 0,
        "x-kubernetes-validations": [rule("self >= 1 || self == oldSelf", "must be greater than or equal to 1")],
    },
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
LEAST = {"type": "integer", "format": "int32", "minimum": 1}
ELASTIC: dict[str, dict[str, Any]] = {
    "": {
        "type": "object",
        "x-kubernetes-validations": [
            rule(
                "!has(self.minNodes) || !has(self.maxNodes) || self.minNodes <= self.maxNodes",
                "minNodes must not be greater than maxNodes",
            )
        ],
    },
    ".minNodes": LEAST,
    ".maxNodes": LEAST,
    ".maxRestarts": SECONDS,
}
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
    **{f"spec.mlPolicy.torch.elasticPolicy{path}": node for path, node in ELASTIC.items()},
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
        "status.trainerStatus.lastCheckpointTime": {"type": "string", "format": "date-time"},
        "status.trainerStatus.worldSize": {"type": "integer", "format": "int32", "minimum": 1},
        **{f"spec.trainer.resourceClaimsPerNode{path}": node for path, node in CLAIMS.items()},
        "spec.trainer.resourceClaimsPerNode[].containerNames": {
            "type": "array",
            "maxItems": 8,
            "x-kubernetes-list-type": "set",
        },
        "spec.trainer.resourceClaimsPerNode[].containerNames[]": {"type": "string", "minLength": 1, "maxLength": 63},
        **{f"{POD_PATCH}.resourceClaims{path}": node for path, node in CLAIMS.items()},
        **{f"spec.trainer.elasticPolicy{path}": node for path, node in ELASTIC.items()},
        "spec.ttlSecondsAfterFinished": SECONDS,
        "status.restarts": {"type": "integer", "format": "int32", "minimum": 0},
        "status.runtimeSnapshotDigest": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    **dict.fromkeys(RUNTIME_KINDS, NEW_IN_RUNTIMES),
    **dict.fromkeys(JOB_KINDS, COUNTED),
}
"""The fields that ours alone has, but for those of pods."""

AS_A_WHOLE = re.compile(r"(spec\.resiliencePolicy|spec\.scheduling|status\.resilience)\b")
"""Extensions as a whole."""

_BELOW = {"additionalProperties", "description", "items", "properties"}


def said(node: dict[str, Any]) -> dict[str, Any]:
    """What a schema says of a value itself."""
    kept = {keyword: value for keyword, value in node.items() if keyword not in _BELOW}
    return kept | ({"required": sorted(kept["required"])} if "required" in kept else {})


@ALL
def test_a_definition_is_the_original_but_for_its_schema_and_the_columns_and_scale_of_trainjobs(kind: str) -> None:
    ours, original = definition(kind), ORIGINALS[kind]
    # The generator of Kubeflow Trainer writes its version into an annotation.
    theirs = original["metadata"] if kind in JOB_KINDS else {"name": original["metadata"]["name"]}
    assert ours["metadata"] == theirs
    [version], [original_version] = ours["spec"]["versions"], original["spec"]["versions"]
    assert ours["spec"] | {"versions": []} == original["spec"] | {"versions": []}
    own: dict[str, Any] = {"schema": {}}
    if kind == "TrainJob":
        own |= {"additionalPrinterColumns": [], "subresources": original_version["subresources"] | {"scale": SCALE}}
        assert version["subresources"] == own["subresources"]
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
    left_out = {path for path in new if PODS.search(path) or AS_A_WHOLE.match(path)} - NEW[kind].keys()
    assert {path: node for path, node in new.items() if path not in left_out} == NEW[kind]


def test_every_framework_counts_as_one_of_which_there_may_be_one() -> None:
    frameworks = {field.alias or name for name, field in MLPolicy.model_fields.items()} - {"numNodes"}
    ((rule, _),) = MLPolicy.__schema__.rules
    assert set(re.findall(r"has\(self\.(\w+)\)", rule)) == frameworks == {*FRAMEWORKS, "custom"}
