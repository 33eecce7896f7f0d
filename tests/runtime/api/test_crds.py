"""The custom resource definitions: made from the models, acceptable to an API server, explained."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.original_crds import KINDS, ROOT, at, definition, nodes, root_of

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
    """Editing a CRD by hand, or a model without generating, would be lost or forgotten."""
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
