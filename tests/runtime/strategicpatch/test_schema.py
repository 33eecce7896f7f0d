"""The generated schemas, complete and true to the Kubernetes API, and the order of merged lists."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.validation import POD_SPEC, containers, finalizers, named, names

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.strategicpatch import MergeSchema, definition, jobset_spec, strategic_merge_patch

ROOT = Path(__file__).parents[3]
DEFINITIONS = ROOT / "hack" / "trainmaster" / "devcluster" / "apiserver" / "schema" / "definitions.json"

needs_source = pytest.mark.skipif(
    find_spec("kubernetes_validate") is None, reason="kubernetes-validate, the source of the schemas, is not installed"
)


def at(name: str, path: str) -> MergeSchema:
    """Walk from a definition along a path; `[]` goes to the elements of a list."""
    schema = definition(name)
    for step in path.split("."):
        schema = schema.item() if step == "[]" else schema.field(step)
    return schema


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    if isinstance(node, list):
        return set().union(*map(references, node))
    return set()


@pytest.mark.nightly
@needs_source
def test_check_tells_a_file_that_is_out_of_date(tmp_path: Path) -> None:
    """Run on a copy: `--check` has to fail, name the remedy and write nothing."""
    hack = tmp_path / "hack"
    target = hack / "trainmaster" / "devcluster" / "apiserver" / "schema" / "definitions.json"
    target.parent.mkdir(parents=True)
    target.write_text("{}\n")
    for name in ("generator.py", "kubernetes_schemas.py", "generate_schemas.py"):
        (hack / name).write_text((ROOT / "hack" / name).read_text())
    check = [sys.executable, str(hack / "generate_schemas.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "out of date: run generate_schemas.py" in done.stderr
    assert target.read_text() == "{}\n"


def test_definitions_are_complete_openapi() -> None:
    """No dangling reference, and none of the ways in which JSON schema says it differently."""
    text = DEFINITIONS.read_text()
    definitions = json.loads(text)
    assert references(definitions) <= set(definitions)
    assert '"null"' not in text
    assert '"description":"' not in text
    assert definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] == {"x-kubernetes-int-or-string": True}
    assert definitions["io.k8s.api.core.v1.Pod"]["properties"]["kind"] == {"type": "string"}
    port = definitions["io.k8s.api.core.v1.ContainerPort"]
    assert port["required"] == ["containerPort"]
    assert port["properties"]["containerPort"] == {"format": "int32", "type": "integer"}


def test_list_keys_that_may_be_absent_have_a_default() -> None:
    """Server-side apply can only compare elements whose key is complete."""
    definitions = json.loads(DEFINITIONS.read_text())
    incomplete = [
        (name.rpartition(".")[2], field, key)
        for name, node in definitions.items()
        for field, schema in node.get("properties", {}).items()
        for key in schema.get("x-kubernetes-list-map-keys", ())
        if (element := definitions[schema["items"]["$ref"]])
        and key not in element.get("required", ())
        and "default" not in element["properties"][key]
    ]
    # References by name default to the empty name in Kubernetes' own types, and a device that is not shared has no
    # share; all others are complete.
    assert sorted(incomplete) == [
        ("PodSpec", "imagePullSecrets", "name"),
        ("ResourceClaimStatus", "devices", "shareID"),
        ("ServiceAccount", "secrets", "name"),
    ]


@pytest.mark.parametrize(
    ("name", "path", "merge_key", "map_keys"),
    [
        ("io.k8s.api.core.v1.Pod", "spec.containers", "name", ("name",)),
        ("io.k8s.api.core.v1.Pod", "spec.hostAliases", "ip", ("ip",)),
        (
            "io.k8s.api.core.v1.Pod",
            "spec.topologySpreadConstraints",
            "topologyKey",
            ("topologyKey", "whenUnsatisfiable"),
        ),
        ("io.k8s.api.core.v1.Pod", "spec.containers.[].volumeMounts", "mountPath", ("mountPath",)),
        ("io.k8s.api.core.v1.Pod", "spec.containers.[].ports", "containerPort", ("containerPort", "protocol")),
        ("io.k8s.api.core.v1.Pod", "metadata.ownerReferences", "uid", ("uid",)),
        ("io.k8s.api.core.v1.Service", "spec.ports", "port", ("port", "protocol")),
        ("io.k8s.api.batch.v1.Job", "spec.template.spec.containers", "name", ("name",)),
    ],
)
def test_keyed_lists(name: str, path: str, merge_key: str, map_keys: tuple[str, ...]) -> None:
    schema = at(name, path)
    assert schema.is_list
    assert schema.patch_merge_key == merge_key
    assert schema.patch_strategies == {"merge"}
    assert (schema.list_type, schema.map_keys) == ("map", map_keys)


@pytest.mark.parametrize("field", ["volumes", "resourceClaims"])
def test_lists_whose_elements_switch_kind_retain_keys(field: str) -> None:
    assert at("io.k8s.api.core.v1.PodSpec", field).patch_strategies == {"merge", "retainKeys"}


@pytest.mark.parametrize("path", ["tolerations", "containers.[].args"])
def test_atomic_lists(path: str) -> None:
    schema = at("io.k8s.api.core.v1.PodSpec", path)
    assert schema.is_list
    assert schema.list_type == "atomic"
    assert schema.patch_merge_key is None
    assert not schema.patch_strategies


def test_sets() -> None:
    schema = at("io.k8s.api.core.v1.Pod", "metadata.finalizers")
    assert (schema.is_list, schema.list_type, schema.patch_merge_key) == (True, "set", None)


@pytest.mark.parametrize(
    ("path", "map_type"),
    [
        ("metadata.labels", "granular"),
        ("spec.nodeSelector", "atomic"),
        ("spec.containers.[].resources.limits", "granular"),
        ("spec.containers.[].env.[].valueFrom.secretKeyRef", "atomic"),
        ("spec.securityContext", "granular"),
    ],
)
def test_maps(path: str, map_type: str) -> None:
    schema = at("io.k8s.api.core.v1.Pod", path)
    assert (schema.is_map, schema.is_list, schema.map_type) == (True, False, map_type)


def test_a_field_may_overrule_the_type_of_what_it_refers_to() -> None:
    """References are atomic, but a persistent volume's claimRef is declared to be granular."""
    reference = "io.k8s.api.core.v1.ObjectReference"
    assert MergeSchema({"ref": reference}).map_type == "atomic"
    assert MergeSchema({"ref": reference, "mapType": "granular"}).map_type == "granular"


@pytest.mark.parametrize("path", ["unknown", "hostname", "hostname.deeper", "nodeSelector.key", "tolerations.field"])
def test_scalars_and_unknown_fields_are_untyped(path: str) -> None:
    schema = at("io.k8s.api.core.v1.PodSpec", path)
    assert not schema.is_list
    assert not schema.is_map
    assert schema.item() is schema.field("anything") is schema
    assert (schema.patch_merge_key, schema.list_type, schema.map_keys, schema.map_type) == (None, None, (), "granular")


def test_schemas_that_hold_themselves_are_no_trap() -> None:
    path = ".".join(["properties.x.items", "not"] * 30)
    props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
    assert at(props, "not.properties.x.not.allOf.[].required").is_list
    assert not at(props, path).is_list


def test_jobset_spec_reaches_the_pod() -> None:
    jobs = jobset_spec().field("replicatedJobs")
    assert (jobs.patch_merge_key, jobs.map_keys) == ("name", ("name",))
    template = jobs.item().field("template")
    assert template.field("metadata").field("finalizers").patch_strategies == {"merge"}
    pod = template.field("spec").field("template").field("spec")
    assert pod.field("containers").item().field("env").patch_merge_key == "name"


def test_an_unknown_definition_is_named() -> None:
    with pytest.raises(LookupError, match=r"no merge rules for io\.k8s\.api\.core\.v1\.Nonsense"):
        definition("io.k8s.api.core.v1.Nonsense")


NAMES = st.sampled_from("abcdef")


def test_order_with_additions_and_deletions_as_kubectl_sends_them() -> None:
    patch = {
        "$setElementOrder/containers": named("c", "n", "a"),
        "containers": [{"name": "n", "image": "new"}, {"name": "b", "$patch": "delete"}],
    }
    merged = strategic_merge_patch({"containers": named("a", "b", "c", image="old")}, patch, POD_SPEC)
    assert merged["containers"] == [
        {"name": "c", "image": "old"},
        {"name": "n", "image": "new"},
        {"name": "a", "image": "old"},
    ]


def test_elements_of_others_keep_their_relative_place() -> None:
    """A sidecar that an admission webhook injected must survive an apply that does not know it."""
    patch = {"$setElementOrder/containers": named("b", "a")}
    merged = strategic_merge_patch({"containers": named("sidecar", "a", "b", "last")}, patch, POD_SPEC)
    assert names(merged["containers"]) == ["sidecar", "b", "a", "last"]


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        (["a", "b"], {"$setElementOrder/finalizers": ["c", "a"], "finalizers": ["c"]}, ["c", "a", "b"]),
        (
            ["a", "b", "c"],
            {"$setElementOrder/finalizers": ["b", "a"], "$deleteFromPrimitiveList/finalizers": ["c"]},
            ["b", "a"],
        ),
        (["a", "b", "a"], {"$setElementOrder/finalizers": ["b", "a"]}, ["b", "a"]),
    ],
    ids=["with additions", "with removals", "of those that occur twice"],
)
def test_order_of_scalars(original: list[str], patch: JsonObject, expected: list[str]) -> None:
    assert finalizers(original, patch) == expected


def test_order_of_a_list_that_does_not_exist() -> None:
    assert strategic_merge_patch({}, {"$setElementOrder/containers": named("a")}, POD_SPEC) == {}


@given(st.lists(NAMES, unique=True), st.permutations("abcdef"))
def test_a_complete_element_order_is_the_order(original: list[str], order: list[str]) -> None:
    patch = {"$setElementOrder/containers": named(*order)}
    merged = strategic_merge_patch({"containers": named(*original)}, patch, POD_SPEC)
    assert names(merged["containers"]) == [name for name in order if name in original]


@given(st.lists(NAMES, unique=True), st.lists(NAMES, unique=True))
def test_what_only_the_original_has_goes_before_what_it_preceded_and_behind_anything_new(
    original: list[str], patch: list[str]
) -> None:
    """The rule of the API server: one step after the other, of two heads the patch's comes, unless both are known."""
    theirs, ours, expected = [name for name in original if name not in patch], list(patch), []
    while theirs and ours:
        known = ours[0] in original and original.index(theirs[0]) < original.index(ours[0])
        expected.append(theirs.pop(0) if known else ours.pop(0))
    # A list that is not there at all is the patch's.
    expected += [*theirs, *ours]
    assert containers(original, named(*patch)) == expected
    assert finalizers(original, {"finalizers": patch}) == expected
