"""The custom resource definitions: up to date, acceptable to an API server, and with the limits users rely on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo
from support.crds import KINDS, POD_PATCH, ROOT, at, definition, nodes, root_of

from trainmaster.runtime.api import ApiModel, ClusterTrainingRuntime, TrainingRuntime, TrainJob

RUNTIME_KINDS = ["ClusterTrainingRuntime", "TrainingRuntime"]

ALLOWED_KEYWORDS = {
    "additionalProperties", "anyOf", "default", "description", "enum", "format", "items", "maxItems", "maxLength",
    "maximum", "minItems", "minLength", "minProperties", "minimum", "pattern", "properties", "required", "type",
    "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type",
    "x-kubernetes-validations",
}  # fmt: skip


FREE_FORM = "x-kubernetes-preserve-unknown-fields"
CONFIGS = ("spec.mlPolicy.custom.config", "spec.podGroupPolicy.custom.config")
"""Where plugins say what may be in there, and nobody else."""


@pytest.mark.nightly
def test_files_are_generated() -> None:
    """Editing a CRD by hand, or its source without generating, would be lost or forgotten."""
    pytest.importorskip("kubernetes_validate")
    command = [sys.executable, str(ROOT / "hack/generate_crds.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_structural(kind: str) -> None:
    """An API server refuses a CRD, or never establishes it, that breaks one of these rules."""
    for path, node in nodes(root_of(kind)):
        assert node.keys() <= {*ALLOWED_KEYWORDS, *({FREE_FORM} if path in CONFIGS else ())}, path
        if node.get("x-kubernetes-int-or-string"):
            assert "type" not in node, path
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        else:
            assert node["type"] in {"object", "array", "string", "integer", "boolean"}, path
            assert "anyOf" not in node, path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert set(node.get("required", [])) <= set(node.get("properties", {})), path
        assert ("items" in node) == (node.get("type") == "array"), path


@pytest.mark.parametrize("kind", KINDS)
def test_lists_can_be_merged(kind: str) -> None:
    """Keys of a list must always have a value, and elements of a set must be comparable."""
    for path, node in nodes(root_of(kind)):
        list_type = node.get("x-kubernetes-list-type")
        keys = node.get("x-kubernetes-list-map-keys")
        assert (list_type == "map") == bool(keys), path
        if list_type == "set":
            assert node["items"]["type"] in {"string", "integer"}, path
        for key in keys or ():
            items = node["items"]
            assert key in items.get("required", ()) or "default" in items["properties"][key], f"{path}: {key}"


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_valid(kind: str) -> None:
    types = {"string": str, "integer": int, "boolean": bool, "object": dict}
    for path, node in nodes(root_of(kind)):
        if "default" in node:
            assert type(node["default"]) is types[node["type"]], path
            assert node["default"] in node.get("enum", [node["default"]]), path


@pytest.mark.parametrize("kind", KINDS)
def test_embedded_metadata_keeps_what_has_a_meaning(kind: str) -> None:
    """A template's metadata has no uid or owner; the object's own metadata is the API server's business."""
    kept = {"annotations", "finalizers", "labels", "name", "namespace"}
    embedded = [node for path, node in nodes(root_of(kind)) if path.endswith(".metadata")]
    assert embedded
    assert all(set(node["properties"]) == kept for node in embedded)
    assert root_of(kind)["properties"]["metadata"] == {"type": "object"}


@pytest.mark.parametrize(
    ("kind", "scope", "plural", "version", "status"),
    [
        ("TrainJob", "Namespaced", "trainjobs", "v1alpha1", True),
        ("TrainingRuntime", "Namespaced", "trainingruntimes", "v1alpha1", False),
        ("ClusterTrainingRuntime", "Cluster", "clustertrainingruntimes", "v1alpha1", False),
        ("OptimizationJob", "Namespaced", "optimizationjobs", "v1alpha1", True),
        ("JobSet", "Namespaced", "jobsets", "v1alpha2", True),
    ],
)
def test_frame(kind: str, scope: str, plural: str, version: str, status: bool) -> None:
    crd = definition(kind)
    spec = crd["spec"]
    [served] = spec["versions"]
    assert crd["metadata"] == {"name": f"{plural}.{spec['group']}"}
    assert spec["scope"] == scope
    assert spec["names"] == {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    assert (served["name"], served["served"], served["storage"]) == (version, True, True)
    assert served.get("subresources") == ({"status": {}} if status else None)


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
    assert columns("TrainingRuntime") == columns("ClusterTrainingRuntime") == columns("OptimizationJob") == []
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


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec", {"required": ["runtimeRef"]}),
        ("spec.runtimeRef", {"required": ["name"]}),
        ("spec.runtimeRef.name", {"minLength": 1, "maxLength": 253}),
        ("spec.runtimeRef.apiGroup", {"default": "trainer.kubeflow.org", "maxLength": 253}),
        ("spec.runtimeRef.kind", {"default": "ClusterTrainingRuntime", "maxLength": 253}),
        ("spec.suspend", {"default": False}),
        ("spec.managedBy", {"default": "trainer.kubeflow.org/trainjob-controller", "maxLength": 253}),
        ("spec.activeDeadlineSeconds", {"type": "integer", "format": "int64", "minimum": 1}),
        ("spec.ttlSecondsAfterFinished", {"type": "integer", "format": "int32", "minimum": 0}),
        ("spec.initializer.dataset.storageUri", {"maxLength": 2048}),
        ("spec.initializer.model.env", {"maxItems": 128, "x-kubernetes-list-map-keys": ["name"]}),
        ("spec.initializer.model.secretRef", {"x-kubernetes-map-type": "atomic"}),
        ("spec.trainer.image", {"maxLength": 500}),
        ("spec.trainer.command", {"maxItems": 128, "x-kubernetes-list-type": "atomic"}),
        ("spec.trainer.args[]", {"maxLength": 1048576}),
        ("spec.trainer.env", {"maxItems": 128, "x-kubernetes-list-map-keys": ["name"]}),
        ("spec.trainer.numNodes", {"type": "integer", "format": "int32", "minimum": 0}),
        ("spec.trainer.resourcesPerNode.limits{}", {"x-kubernetes-int-or-string": True}),
        ("spec.runtimePatches", {"maxItems": 16, "x-kubernetes-list-map-keys": ["manager"]}),
        ("spec.runtimePatches[]", {"required": ["manager"]}),
        ("spec.runtimePatches[].manager", {"minLength": 1, "maxLength": 253}),
        ("spec.runtimePatches[].time", {"format": "date-time"}),
        (f"{POD_PATCH}.containers", {"maxItems": 64, "x-kubernetes-list-map-keys": ["name"]}),
        (f"{POD_PATCH}.containers[].volumeMounts", {"maxItems": 128, "x-kubernetes-list-map-keys": ["name"]}),
        (f"{POD_PATCH}.volumes", {"maxItems": 128, "x-kubernetes-list-map-keys": ["name"]}),
        (f"{POD_PATCH}.tolerations", {"maxItems": 128, "x-kubernetes-list-type": "atomic"}),
        (f"{POD_PATCH}.schedulingGates", {"maxItems": 16}),
        *(
            (f"{claims}{field}", expected)
            for claims in ("spec.trainer.resourceClaimsPerNode", f"{POD_PATCH}.resourceClaims")
            for field, expected in (
                ("", {"maxItems": 32, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
                ("[]", {"required": ["name"]}),
                ("[].name", {"minLength": 1, "maxLength": 63}),
                ("[].resourceClaimName", {"type": "string", "maxLength": 253}),
                ("[].resourceClaimTemplateName", {"type": "string", "maxLength": 253}),
            )
        ),
        (
            "spec.trainer.resourceClaimsPerNode[].containerNames",
            {"maxItems": 8, "x-kubernetes-list-type": "set"},
        ),
        (f"{POD_PATCH}.imagePullSecrets", {"maxItems": 64}),
        (f"{POD_PATCH}.imagePullSecrets[].name", {"default": ""}),
        (f"{POD_PATCH}.serviceAccountName", {"maxLength": 253}),
        (f"{POD_PATCH}.terminationGracePeriodSeconds", {"minimum": 0, "format": "int64"}),
        ("status", {"minProperties": 1}),
        ("status.conditions", {"maxItems": 8, "x-kubernetes-list-map-keys": ["type"]}),
        ("status.conditions[].status", {"enum": ["True", "False", "Unknown"]}),
        ("status.jobsStatus", {"maxItems": 100, "x-kubernetes-list-map-keys": ["name"]}),
        ("status.jobsStatus[]", {"required": ["active", "failed", "name", "ready", "succeeded", "suspended"]}),
        ("status.jobsStatus[].ready", {"minimum": 0}),
        ("status.trainerStatus.progressPercentage", {"minimum": 0, "maximum": 100}),
        ("status.trainerStatus.metrics", {"maxItems": 256, "x-kubernetes-list-type": "atomic"}),
        ("status.trainerStatus.metrics[].value", {"minLength": 1, "maxLength": 64}),
    ],
)
def test_limits_of_trainjob(path: str, expected: dict[str, Any]) -> None:
    assert expected.items() <= at("TrainJob", path).items()


def test_only_what_a_patch_may_change_is_in_its_schema() -> None:
    """The API server drops the rest, so a patch cannot replace what belongs to the trainer or to the runtime."""
    assert set(at("TrainJob", POD_PATCH)["properties"]) == {
        "affinity", "containers", "imagePullSecrets", "initContainers", "nodeSelector", "resourceClaims",
        "schedulingGates", "securityContext", "serviceAccountName", "terminationGracePeriodSeconds", "tolerations",
        "volumes",
    }  # fmt: skip
    for containers in ("containers", "initContainers"):
        fields = at("TrainJob", f"{POD_PATCH}.{containers}[]")["properties"]
        assert set(fields) == {"env", "name", "securityContext", "volumeMounts"}


@pytest.mark.parametrize("kind", RUNTIME_KINDS)
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec", {"minProperties": 1}),
        ("spec.runPolicy.ttlSecondsAfterFinished", {"type": "integer", "minimum": 0}),
        ("spec.template", {"minProperties": 1}),
        ("spec.mlPolicy.torch.envInjection.targets", {"maxItems": 16, "x-kubernetes-list-map-keys": ["jobName"]}),
        ("spec.mlPolicy.torch.envInjection.targets[]", {"required": ["containerNames", "jobName"]}),
        (
            "spec.mlPolicy.torch.envInjection.targets[].containerNames",
            {"minItems": 1, "maxItems": 8, "x-kubernetes-list-type": "set"},
        ),
        ("spec.mlPolicy.torch.envInjection.targets[].containerNames[]", {"maxLength": 63}),
        ("spec.mlPolicy.mpi.numProcPerNode", {"default": 1}),
        ("spec.mlPolicy.mpi.mpiImplementation", {"default": "OpenMPI", "enum": ["OpenMPI", "IntelMPI", "MPICH", ""]}),
        ("spec.mlPolicy.mpi.sshAuthMountPath", {"default": "/root/.ssh", "maxLength": 4096}),
        ("spec.mlPolicy.mpi.runLauncherAsNode", {"default": False}),
        ("spec.mlPolicy.flux.numProcPerNode", {"default": 1}),
        ("spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds", {"default": 60}),
        *(
            expected
            for path in ("spec.mlPolicy.custom", "spec.podGroupPolicy.custom")
            for expected in (
                (path, {"required": ["name"]}),
                (f"{path}.name", {"minLength": 1, "maxLength": 253, "pattern": "^[A-Za-z0-9_.-]+$"}),
                (f"{path}.config", {"type": "object", FREE_FORM: True}),
            )
        ),
        ("spec.podGroupPolicy.volcano.networkTopology.mode", {"default": "hard", "enum": ["hard", "soft"]}),
        ("spec.podGroupPolicy.volcano.networkTopology.highestTierAllowed", {"default": 1}),
    ],
)
def test_limits_of_runtimes(kind: str, path: str, expected: dict[str, Any]) -> None:
    assert expected.items() <= at(kind, path).items()


@pytest.mark.parametrize("kind", RUNTIME_KINDS)
@pytest.mark.parametrize("path", ["spec.mlPolicy.numNodes", "spec.mlPolicy.jax", "spec.mlPolicy.xgboost"])
def test_runtimes_have_no_other_limits(kind: str, path: str) -> None:
    assert at(kind, path).keys() <= {"type", "format", "description"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.replicatedJobs", {"x-kubernetes-list-map-keys": ["name"]}),
        ("spec.replicatedJobs[]", {"required": ["name", "template"]}),
        ("spec.replicatedJobs[].replicas", {"default": 1}),
        ("spec.replicatedJobs[].groupName", {"default": "default"}),
        ("spec.replicatedJobs[].dependsOn", {"maxItems": 5, "x-kubernetes-list-map-keys": ["name"]}),
        ("spec.replicatedJobs[].dependsOn[].status", {"enum": ["Ready", "Complete"]}),
        (
            "spec.failurePolicy.restartStrategy",
            {"default": "Recreate", "enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]},
        ),
        ("spec.failurePolicy.rules[]", {"required": ["action", "name"]}),
        ("spec.successPolicy", {"required": ["operator"]}),
        ("spec.startupPolicy.startupPolicyOrder", {"enum": ["AnyOrder", "InOrder"]}),
        ("spec.coordinator", {"required": ["replicatedJob"]}),
        ("spec.ttlSecondsAfterFinished", {"minimum": 0}),
        ("spec.volumeClaimPolicies", {"maxItems": 50, "x-kubernetes-list-type": "atomic"}),
        ("spec.volumeClaimPolicies[].templates", {"maxItems": 50}),
        ("spec.volumeClaimPolicies[].retentionPolicy.whenDeleted", {"default": "Delete"}),
        ("status.replicatedJobsStatus", {"x-kubernetes-list-map-keys": ["name"]}),
        ("status.restarts", {"type": "integer"}),
    ],
)
def test_limits_of_jobset(path: str, expected: dict[str, Any]) -> None:
    assert expected.items() <= at("JobSet", path).items()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("containers", {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
        ("containers[].ports", {"x-kubernetes-list-map-keys": ["containerPort", "protocol"]}),
        ("containers[].ports[].protocol", {"default": "TCP"}),
        ("containers[].volumeMounts", {"x-kubernetes-list-map-keys": ["mountPath"]}),
        ("containers[].env[].valueFrom.configMapKeyRef.name", {"default": ""}),
        ("containers[].livenessProbe.grpc.service", {"default": ""}),
        ("containers[].livenessProbe.httpGet.port", {"x-kubernetes-int-or-string": True}),
        ("containers[].resources.limits{}", {"x-kubernetes-int-or-string": True}),
        ("topologySpreadConstraints", {"x-kubernetes-list-map-keys": ["topologyKey", "whenUnsatisfiable"]}),
        ("volumes[].ephemeral.volumeClaimTemplate.metadata", {"type": "object"}),
        ("tolerations", {"x-kubernetes-list-type": "atomic"}),
    ],
)
def test_pods_are_typed_as_in_kubernetes(path: str, expected: dict[str, Any]) -> None:
    pod = "spec.replicatedJobs[].template.spec.template.spec"
    assert expected.items() <= at("JobSet", f"{pod}.{path}").items()


def test_quantities_have_a_pattern() -> None:
    assert at("TrainJob", "spec.trainer.resourcesPerNode.limits{}")["pattern"].startswith(r"^(\+|-)?")


def models_in(annotation: Any) -> list[type[ApiModel]]:
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        return [annotation]
    if get_origin(annotation) in {Annotated, Union, UnionType, list}:
        return [model for argument in get_args(annotation) for model in models_in(argument)]
    return []


def json_type(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return json_type(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        types = {json_type(argument) for argument in get_args(annotation) if argument is not type(None)}
        return "int-or-string" if types == {"integer", "string"} else types.pop()
    if get_origin(annotation) is Literal:
        return "string"
    plain = get_origin(annotation) or annotation
    return {str: "string", int: "integer", bool: "boolean", list: "array", dict: "object"}.get(plain, "object")


def modelled(model: type[ApiModel], schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Walk models and schema together; metadata, and kind and apiVersion of the object, are Kubernetes' business."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    common = {"apiVersion", "kind", "metadata"} if not path else {"metadata"}
    assert fields.keys() - common == schema.get("properties", {}).keys() - common, f"{model.__name__} at {path or '/'}"
    for name, field in fields.items():
        if name in common:
            continue
        node = schema["properties"][name]
        yield f"{path}.{name}", field, node
        for nested in models_in(field.annotation):
            yield from modelled(nested, node.get("items", node), f"{path}.{name}")


@pytest.mark.parametrize("model", [TrainJob, TrainingRuntime, ClusterTrainingRuntime])
def test_models_and_crds_agree(model: type[ApiModel]) -> None:
    """What the API server lets through is what Python sees: same fields, same types, same defaults."""
    count = 0
    for path, field, node in modelled(model, root_of(model.__name__)):
        count += 1
        kind = "int-or-string" if node.get("x-kubernetes-int-or-string") else node["type"]
        assert json_type(field.annotation) == kind, path
        if "default" in node:
            assert field.default == node["default"], path
        elif not field.is_required():
            assert field.get_default(call_default_factory=True) in (None, "", 0) or field.default_factory, path
        assert node["description"], f"{path}: `kubectl explain` has nothing to say"
    assert count > 20


def test_pod_fields_are_not_explained_again() -> None:
    """`kubectl explain pod` does that, and the texts would triple the size of the CRDs."""
    template = at("JobSet", "spec.replicatedJobs[].template")
    assert [path for path, node in nodes(template) if "description" in node] == [""]
    assert all(node["description"] for node in root_of("JobSet")["properties"]["spec"]["properties"].values())
