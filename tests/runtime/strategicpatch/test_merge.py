"""Strategic merge patch: the rules of the Kubernetes API, each directive, wrong patches, laws for every patch."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.validation import POD, POD_SPEC, containers, finalizers, named

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.strategicpatch import (
    MergeError,
    MergeSchema,
    definition,
    strategic_merge_patch,
    strategic_merge_patches,
)

CONFIG_MAP = definition("io.k8s.api.core.v1.ConfigMap")


def volume(**fields: Any) -> JsonObject:
    """A pod, or a patch of one, with one volume."""
    return {"volumes": [{"name": "data", **fields}]}


def container(**fields: Any) -> JsonObject:
    """A pod, or a patch of one, with one container."""
    return {"containers": [{"name": "a", **fields}]}


CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
PORTS = [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
MERGED: dict[str, tuple[JsonObject, JsonObject, JsonObject]] = {
    "scalars are replaced": (
        {"hostname": "a", "subdomain": "b"},
        {"hostname": "c"},
        {"hostname": "c", "subdomain": "b"},
    ),
    "maps merge by key, also those that server-side apply treats as one value": (
        {"nodeSelector": {"a": "1", "b": "2"}},
        {"nodeSelector": {"b": "3"}},
        {"nodeSelector": {"a": "1", "b": "3"}},
    ),
    "null deletes and is never stored": (
        {"hostname": "a", "nodeSelector": {"a": "1"}},
        {"hostname": None, "subdomain": None, "nodeSelector": {"a": None}, "affinity": {"podAffinity": None}},
        {"nodeSelector": {}, "affinity": {}},
    ),
    "a map replaces a list of an unknown field": ({"x": [1]}, {"x": {"a": 1}}, {"x": {"a": 1}}),
    "a scalar replaces a map of an unknown field": ({"x": {"a": 1}}, {"x": 1}, {"x": 1}),
    "fields of an unknown type merge as maps and replace lists": (
        {"new": {"list": [{"name": "a"}], "kept": 1}},
        {"new": {"list": [{"name": "b"}]}},
        {"new": {"list": [{"name": "b"}], "kept": 1}},
    ),
    "$patch: replace of an object": (
        {"affinity": {"nodeAffinity": {"a": 1}, "podAffinity": {"b": 2}}},
        {"affinity": {"$patch": "replace", "podAffinity": {"c": 3, "d": None}}},
        {"affinity": {"podAffinity": {"c": 3}}},
    ),
    "$patch: replace at the top": ({"a": 1}, {"$patch": "replace", "b": 2}, {"b": 2}),
    # As the API server does: `emptyDir: {}` is not the same as no emptyDir.
    "$patch: delete empties an object": ({"affinity": {"a": 1}}, {"affinity": {"$patch": "delete"}}, {"affinity": {}}),
    "$patch: delete creates nothing": ({}, {"affinity": {"$patch": "delete"}}, {}),
    "$patch: merge is what happens anyway": (
        {"affinity": {"a": 1}},
        {"affinity": {"$patch": "merge", "b": 2}},
        {"affinity": {"a": 1, "b": 2}},
    ),
    # Without the directive the volume would end up with two sources, which no API server accepts.
    "$retainKeys switches the kind of a volume": (
        volume(emptyDir={}),
        volume(**CLAIM, **{"$retainKeys": ["name", "persistentVolumeClaim"]}),
        volume(**CLAIM),
    ),
    "$retainKeys of a new volume": ({}, volume(**CLAIM, **{"$retainKeys": ["name", *CLAIM]}), volume(**CLAIM)),
    "$retainKeys allows nulls of other keys": (
        volume(emptyDir={}),
        volume(emptyDir=None, hostPath={}, **{"$retainKeys": ["name", "hostPath"]}),
        volume(hostPath={}),
    ),
    "a list without merge strategy is replaced": (
        {"tolerations": [{"key": "a"}, {"key": "b"}], **container(args=["1", "2"])},
        {"tolerations": [{"key": "c"}], **container(args=["3"])},
        {"tolerations": [{"key": "c"}], **container(args=["3"])},
    ),
    "an empty list replaces too": ({"tolerations": [{"key": "a"}]}, {"tolerations": []}, {"tolerations": []}),
    "neither nulls nor directives enter a new list": (
        {},
        {"tolerations": [{"$patch": "replace"}, {"key": "a", "value": None}]},
        {"tolerations": [{"key": "a"}]},
    ),
    # A null deletes a field; there is no field in a list.
    "a null element is a value": ({}, {"x": [None, [None, 1], {"a": None}]}, {"x": [None, [None, 1], {}]}),
    "elements merge by their key, at every level": (
        container(image="1", env=[{"name": "X", "value": "1"}]),
        container(env=[{"name": "Y", "value": "2"}]),
        container(image="1", env=[{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]),
    ),
    "a merge key may be a number": (
        container(ports=[{"containerPort": 80, "name": "http"}]),
        container(ports=[{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]),
        container(ports=[{"containerPort": 80, "name": "http", "hostPort": 8080}, {"containerPort": 81}]),
    ),
    # One port with two protocols: the merge key of strategic merge is the number alone.
    "equal keys of a new list stay side by side": (container(), container(ports=PORTS), container(ports=PORTS)),
    "deletion of an absent element": (container(), {"containers": [{"name": "b", "$patch": "delete"}]}, container()),
    "deletion from an absent list": ({}, {"containers": [{"name": "b", "$patch": "delete"}]}, {"containers": []}),
    "deletion and addition of one key starts afresh": (
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
        {"containers": [{"name": "a", "$patch": "delete"}, {"name": "a", "tty": True}]},
        {"containers": [{"name": "a", "tty": True}, {"name": "b"}]},
    ),
    "$patch: merge of an element": (
        container(image="1"),
        container(tty=True, **{"$patch": "merge"}),
        container(image="1", tty=True),
    ),
    "directives inside of a new element": (
        {},
        volume(emptyDir={"$patch": "replace", "medium": "Memory"}, hostPath={"$patch": "delete"}),
        volume(emptyDir={"medium": "Memory"}),
    ),
}


@pytest.mark.parametrize(("original", "patch", "expected"), MERGED.values(), ids=MERGED)
def test_patches_merge_by_the_rules_of_the_api(original: JsonObject, patch: JsonObject, expected: JsonObject) -> None:
    assert strategic_merge_patch(original, patch, POD_SPEC) == expected


def test_the_field_named_dollar_ref_is_a_field() -> None:
    """Schemas inside of a CustomResourceDefinition hold such names; only the known directives are special."""
    patch = {"data": {"$ref": "x", "$schema": "y", "a/b": "z"}}
    assert strategic_merge_patch({}, patch, CONFIG_MAP) == patch


def test_a_field_with_the_replace_strategy_is_replaced() -> None:
    """PodDisruptionBudgets have such a selector; merging two selectors would select nothing."""
    schema = MergeSchema({"fields": {"selector": {"fields": {}, "strategies": ["replace"]}}})
    assert strategic_merge_patch({"selector": {"a": 1}}, {"selector": {"b": 2}}, schema) == {"selector": {"b": 2}}


def test_a_number_and_a_boolean_are_different_keys() -> None:
    """Python takes 1 and True for the same key of a dict; JSON does not."""
    schema = MergeSchema({"fields": {"list": {"items": {}, "mergeKey": "id", "strategies": ["merge"]}}})
    merged = strategic_merge_patch({"list": [{"id": 1}]}, {"list": [{"id": True}]}, schema)
    assert sorted(str(element["id"]) for element in merged["list"]) == ["1", "True"]


def test_replace_as_an_element_replaces_the_list() -> None:
    assert containers(["a", "b"], [*named("c", "a"), {"$patch": "replace"}, {"name": "b", "$patch": "delete"}]) == [
        "c",
        "a",
    ]
    assert containers(["a", "b"], [{"$patch": "replace"}]) == []


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        (["a", "b"], {"finalizers": ["b", "c"]}, ["a", "b", "c"]),
        ([], {"finalizers": ["c", "c"]}, ["c"]),
        (["a", "b", "c"], {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}, ["a", "c"]),
        (["a", "b"], {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}, ["c", "b"]),
        (["a"], {"finalizers": None}, None),
    ],
    ids=["united", "duplicates", "deleted", "added before others are deleted", "null"],
)
def test_a_list_of_scalars_merges_by_value(original: list[str], patch: JsonObject, expected: list[str] | None) -> None:
    assert finalizers(original, patch) == expected


def test_delete_from_primitive_list_creates_nothing() -> None:
    assert strategic_merge_patch({}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}}, POD) == {
        "metadata": {}
    }


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"containers": [{"name": "a"}, {"image": "x"}]}, "containers[1]"),
        ({"containers": [{"name": ["a"]}]}, "containers[0]"),
        ({"containers": ["a"]}, "containers[0]"),
        ({"containers": [{"$patch": "delete"}]}, "containers[0]"),
        ({"containers": [{"name": "a", "$patch": "replace"}]}, "containers[0]"),
        ({"containers": [{"name": "a", "$patch": "remove"}]}, "containers[0].$patch"),
        ({"containers": [{"name": "a", "env": [{"value": "x"}]}]}, "containers[0].env[0]"),
        ({"containers": [{"name": "new", "env": [{"value": "x"}]}]}, "containers[0].env[0]"),
        ({"containers": {"name": "a"}}, "containers"),
        ({"affinity": []}, "affinity"),
        ({"affinity": {"$patch": None}}, "affinity.$patch"),
        ({"$patch": "remove"}, "$patch"),
        ({"tolerations": ["a"]}, "tolerations[0]"),
        ({"tolerations": [{"key": "a", "$patch": "delete"}]}, "tolerations[0]"),
        ({"$retainKeys": "name"}, "$retainKeys"),
        ({"$retainKeys": [1]}, "$retainKeys"),
        ({"$retainKeys": ["hostname"], "subdomain": "a"}, "$retainKeys"),
        ({"$setElementOrder": []}, "$setElementOrder"),
        ({"$setElementOrder/": []}, "$setElementOrder/"),
        ({"$setElementOrder/containers": {}}, "$setElementOrder/containers"),
        ({"$setElementOrder/containers": ["a"]}, "containers"),
        ({"$setElementOrder/containers": named("a"), "containers": named("b")}, "containers"),
        ({"$setElementOrder/containers": named("a", "b"), "containers": named("b", "a")}, "containers"),
        ({"$setElementOrder/tolerations": [{"key": "a"}]}, "tolerations"),
        ({"$setElementOrder/hostname": []}, "hostname"),
        ({"$deleteFromPrimitiveList": []}, "$deleteFromPrimitiveList"),
        ({"$deleteFromPrimitiveList/containers": ["a"]}, "containers"),
        ({"$deleteFromPrimitiveList/new": ["a"]}, "new"),
    ],
)
def test_a_patch_that_cannot_mean_anything_is_refused_with_its_path(patch: JsonObject, path: str) -> None:
    original = {"containers": [{"name": "a", "env": [{"name": "X"}]}], "tolerations": [{"key": "a"}], "hostname": "x"}
    before = deepcopy(original)
    with pytest.raises(MergeError) as caught:
        strategic_merge_patch(original, patch, POD_SPEC)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert original == before


@pytest.mark.parametrize("patch", [{"finalizers": [{}]}, {"$deleteFromPrimitiveList/finalizers": [[]]}])
def test_a_list_that_merges_by_value_holds_scalars_only(patch: JsonObject) -> None:
    with pytest.raises(MergeError) as caught:
        finalizers(["a"], patch)
    assert caught.value.path == "metadata.finalizers"


def test_an_original_without_merge_key_is_told_from_a_wrong_patch() -> None:
    with pytest.raises(MergeError, match="an element of the original has no 'name'"):
        strategic_merge_patch({"containers": [{"image": "x"}]}, {"containers": named("a")}, POD_SPEC)


@pytest.mark.parametrize("patch", [None, []])
def test_a_patch_that_is_no_object_is_refused(patch: Any) -> None:
    with pytest.raises(MergeError, match="the patch: must be an object"):
        strategic_merge_patch({}, patch, POD_SPEC)


def test_a_patch_nested_without_end_is_refused() -> None:
    """A client chooses the depth; it must not choose the kind of our failure."""
    patch: JsonObject = {}
    for _ in range(100_000):
        patch = {"a": patch}
    with pytest.raises(MergeError, match="nested too deeply"):
        strategic_merge_patch({}, patch, POD_SPEC)


NAMES = st.sampled_from("abcdef")
SCALARS = st.one_of(st.booleans(), st.integers(-3, 3), st.sampled_from(["x", "y"]))


def keyed(key: str, element: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[list[JsonObject]]:
    """Lists of objects in which `key` is there and unique."""
    return st.lists(
        st.builds(lambda name, fields: {key: name, **fields}, NAMES, element), unique_by=lambda e: e[key], max_size=5
    )


def pods(values: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    """Pods, or patches of pods, whose optional values come from `values`."""
    env = keyed("name", st.fixed_dictionaries({}, optional={"value": values}))
    container = st.fixed_dictionaries(
        {}, optional={"image": values, "env": env, "args": st.lists(SCALARS, max_size=3), "new": values}
    )
    volume = st.fixed_dictionaries({}, optional={"emptyDir": st.dictionaries(NAMES, values, max_size=2)})
    spec = st.fixed_dictionaries(
        {},
        optional={
            "containers": keyed("name", container),
            "volumes": keyed("name", volume),
            "hostAliases": keyed("ip", st.fixed_dictionaries({}, optional={"hostnames": st.lists(NAMES, max_size=2)})),
            "nodeSelector": st.dictionaries(NAMES, values, max_size=3),
            "tolerations": st.lists(st.dictionaries(NAMES, values, max_size=2), max_size=3),
            "hostname": values,
        },
    )
    metadata = st.fixed_dictionaries(
        {},
        optional={
            "labels": st.dictionaries(NAMES, values, max_size=3),
            "finalizers": st.lists(NAMES, unique=True, max_size=4),
        },
    )
    return st.fixed_dictionaries({}, optional={"metadata": metadata, "spec": spec, "free": values})


OBJECTS = pods(SCALARS)
PATCHES = pods(st.one_of(SCALARS, st.none()))


@given(OBJECTS)
def test_the_empty_patch_changes_nothing(pod: JsonObject) -> None:
    assert strategic_merge_patch(pod, {}, POD) == pod


@given(OBJECTS, PATCHES)
def test_merging_twice_equals_merging_once(pod: JsonObject, patch: JsonObject) -> None:
    once = strategic_merge_patch(pod, patch, POD)
    assert strategic_merge_patch(once, patch, POD) == once


@given(OBJECTS, PATCHES)
def test_the_arguments_stay_as_they_are_and_the_result_shares_nothing(pod: JsonObject, patch: JsonObject) -> None:
    """Objects come from caches that every reconcile shares."""
    before, patch_before = deepcopy(pod), deepcopy(patch)
    overwrite(strategic_merge_patch(pod, patch, POD))
    assert (pod, patch) == (before, patch_before)


@given(OBJECTS, PATCHES)
def test_what_the_patch_does_not_name_is_unchanged(pod: JsonObject, patch: JsonObject) -> None:
    assert_outside_unchanged(pod, patch, strategic_merge_patch(pod, patch, POD))


@given(OBJECTS, PATCHES)
def test_no_null_survives(pod: JsonObject, patch: JsonObject) -> None:
    assert not holds_null(strategic_merge_patch(pod, patch, POD))


def overwrite(node: Any) -> None:
    """Destroy a tree as far as it reaches."""
    if isinstance(node, dict):
        for value in node.values():
            overwrite(value)
        node.clear()
    elif isinstance(node, list):
        for value in node:
            overwrite(value)
        node.clear()


def holds_null(node: Any) -> bool:
    if isinstance(node, dict):
        return any(holds_null(value) for value in node.values())
    if isinstance(node, list):
        return any(holds_null(value) for value in node)
    return node is None


def assert_outside_unchanged(original: JsonObject, patch: JsonObject, merged: JsonObject) -> None:
    """Compare all that the patch does not name, down to the elements of the lists that merge by key."""
    for key, value in original.items():
        if key not in patch:
            assert merged[key] == value
        elif isinstance(value, dict) and isinstance(patch[key], dict):
            assert_outside_unchanged(value, patch[key], merged[key])
        elif key in {"containers", "volumes", "env", "hostAliases"}:
            identity = "ip" if key == "hostAliases" else "name"
            changes = {element[identity]: element for element in patch[key]}
            results = {element[identity]: element for element in merged[key]}
            for element in value:
                assert_outside_unchanged(element, changes.get(element[identity], {}), results[element[identity]])


@given(OBJECTS, st.lists(PATCHES, max_size=4))
def test_several_patches_are_merged_as_one_after_the_other(pod: JsonObject, patches: list[JsonObject]) -> None:
    before, patches_before = deepcopy(pod), deepcopy(patches)
    expected = pod
    for patch in patches:
        expected = strategic_merge_patch(expected, patch, POD)
    merged = strategic_merge_patches(pod, patches, POD)
    assert merged == expected
    overwrite(merged)
    assert (pod, patches) == (before, patches_before), "nothing of the arguments is in the result"


class Counted(dict[str, Any]):
    """An object that counts how often it is walked through."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_the_original_is_copied_once_whatever_the_number_of_patches() -> None:
    beside = Counted(a="1")
    patches: list[JsonObject] = [{"nodeSelector": {f"k{position}": "v"}} for position in range(1000)]
    assert len(strategic_merge_patches({"affinity": beside}, patches, POD_SPEC)["nodeSelector"]) == 1000
    assert beside.walks == 1


def test_a_patch_that_cannot_be_merged_leaves_the_original_as_it_was() -> None:
    original: JsonObject = {"nodeSelector": {"a": "1"}, "containers": named("a")}
    before = deepcopy(original)
    good: JsonObject = {"nodeSelector": {"a": "2"}, "containers": named("a", image="i")}
    with pytest.raises(MergeError, match=r"containers\[0\]"):
        strategic_merge_patches(original, [good, {"containers": [{"image": "no name"}]}], POD_SPEC)
    assert original == before
