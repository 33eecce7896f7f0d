"""PATCH: JSON patches, merge patches and strategic merge patches."""

from typing import Any

import pytest
from support.conformance import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Collection
from support.samples import configmap, pod, service, widget


async def test_a_merge_patch_sets_and_removes(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", {"x": "1", "y": "2"}))
    obj = (await configmaps.patch("a", {"data": {"x": None, "z": "3"}})).ok(200)
    assert obj["data"] == {"y": "2", "z": "3"}


async def test_a_merge_patch_replaces_lists(widgets: Collection) -> None:
    await widgets.made(widget("a", tags=["a", "b"]))
    assert (await widgets.patch("a", {"spec": {"tags": ["c"]}})).ok(200)["spec"]["tags"] == ["c"]


async def test_a_patch_that_changes_nothing_keeps_the_resource_version(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a", {"x": "1"}))
    assert (await configmaps.patch("a", {"data": {"x": "1"}})).ok(200)["metadata"] == old["metadata"]


async def test_patches_that_cannot_be(configmaps: Collection) -> None:
    (await configmaps.patch("a", {})).refused(404, "NotFound")
    await configmaps.made(configmap("a"))
    (await configmaps.patch("a", {"metadata": {"name": "b"}})).refused(400, "BadRequest")
    answer = await configmaps.patch("a", {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}})
    assert set(answer.causes()) == {("metadata.uid", "FieldValueInvalid")}
    (await configmaps.patch("a", {"data": {}}, form=JSON_PATCH)).refused(400, "BadRequest")


async def test_a_patch_with_a_resource_version_must_have_the_present_one(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a"))
    body = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
    assert (await configmaps.patch("a", body)).ok(200)["data"] == {"x": "2"}
    (await configmaps.patch("a", {**body, "data": {"x": "3"}})).refused(409, "Conflict")


async def test_a_patch_is_validated(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    """Four validators look at labels, and each of them says so."""
    answer = await configmaps.patch("a", {"metadata": {"labels": {"a": "b c"}}})
    assert answer.causes() == [("metadata.labels", "FieldValueInvalid")] * 4
    assert answer.json["message"].count("metadata.labels") == 1


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"'])
async def test_a_merge_patch_must_be_an_object(configmaps: Collection, body: bytes) -> None:
    """Tolerance: some servers tell what is not JSON from what is not an object, by 400 and 422."""
    await configmaps.made(configmap("a"))
    assert (await configmaps.patch("a", body)).status in {400, 422}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ([{"op": "add", "path": "/data/z", "value": "3"}], {"x": "1", "y": "2", "z": "3"}),
        ([{"op": "remove", "path": "/data/x"}], {"y": "2"}),
        ([{"op": "replace", "path": "/data/x", "value": "9"}], {"x": "9", "y": "2"}),
        ([{"op": "replace", "path": "/data/z", "value": "9"}], {"x": "1", "y": "2", "z": "9"}),
        ([{"op": "move", "from": "/data/x", "path": "/data/z"}], {"y": "2", "z": "1"}),
        ([{"op": "copy", "from": "/data/x", "path": "/data/z"}], {"x": "1", "y": "2", "z": "1"}),
        (
            [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}],
            {"x": "2", "y": "2"},
        ),
        ([{"op": "add", "path": "/data/a~1b~0c", "value": "1"}, {"op": "remove", "path": "/data/a~1b~0c"}], None),
    ],
    ids=["add", "remove", "replace", "replace-missing", "move", "copy", "test", "escapes"],
)
async def test_the_operations_of_a_json_patch(
    configmaps: Collection, patch: list[Any], expected: dict[str, str] | None
) -> None:
    await configmaps.made(configmap("a", {"x": "1", "y": "2"}))
    if expected is None:
        # The key is not a valid one, but it is gone again before anybody looks.
        expected = {"x": "1", "y": "2"}
    assert (await configmaps.patch("a", patch, form=JSON_PATCH)).ok(200)["data"] == expected


async def test_a_json_patch_inserts_into_lists_and_appends(widgets: Collection) -> None:
    await widgets.made(widget("a", steps=["a"]))
    patch = [{"op": "add", "path": "/spec/steps/-", "value": "c"}, {"op": "add", "path": "/spec/steps/1", "value": "b"}]
    assert (await widgets.patch("a", patch, form=JSON_PATCH)).ok(200)["spec"]["steps"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/x", "value": "other"},
        {"op": "remove", "path": "/data/none"},
        {"op": "replace", "path": "/none/deep", "value": "1"},
        {"op": "add", "path": "/none/deep", "value": "1"},
    ],
    ids=["test", "remove", "replace", "add"],
)
async def test_a_json_patch_that_does_not_fit_changes_nothing(configmaps: Collection, operation: Any) -> None:
    old = await configmaps.made(configmap("a", {"x": "1"}))
    patch = [{"op": "add", "path": "/data/y", "value": "2"}, operation]
    (await configmaps.patch("a", patch, form=JSON_PATCH)).refused(422, "Invalid")
    assert await configmaps.read("a") == old


async def test_a_json_patch_has_at_most_ten_thousand_operations(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", {"x": "1"}))
    patch = [{"op": "test", "path": "/data/x", "value": "1"}] * 10_001
    (await configmaps.patch("a", patch, form=JSON_PATCH)).refused(413, "RequestEntityTooLarge")


async def test_a_custom_resource_knows_no_strategic_merge(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    answer = await widgets.patch("a", {"spec": {"size": 2}}, form=STRATEGIC_PATCH)
    answer.refused(415, "UnsupportedMediaType")


async def test_a_strategic_merge_merges_containers_by_name(pods: Collection) -> None:
    """Also with the order of the elements, which kubectl sends with every merge of a list."""
    await pods.made(pod("a", containers=[{"name": "a", "image": "a"}, {"name": "b", "image": "b", "args": ["x"]}]))
    change: dict[str, Any] = {"containers": [{"name": "b", "image": "b2"}]}
    one, other = (await pods.patch("a", {"spec": change}, form=STRATEGIC_PATCH)).ok(200)["spec"]["containers"]
    assert (one["name"], one["image"]) == ("a", "a")
    assert (other["name"], other["image"], other["args"]) == ("b", "b2", ["x"])
    order = {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}]}
    change = {**order, "containers": [{"name": "b", "image": "b3"}]}
    containers = (await pods.patch("a", {"spec": change}, form=STRATEGIC_PATCH)).ok(200)["spec"]["containers"]
    assert [(each["name"], each["image"]) for each in containers] == [("a", "a"), ("b", "b3")]


@pytest.mark.parametrize(
    ("change", "ports"),
    [
        ([{"port": 81, "name": "c"}], {("a", 80), ("c", 81)}),
        ([{"$patch": "delete", "port": 80}], {("b", 81)}),
        ([{"port": 82, "name": "c"}, {"$patch": "replace"}], {("c", 82)}),
    ],
)
async def test_a_strategic_merge_merges_ports_by_number(
    services: Collection, change: list[Any], ports: set[tuple[str, int]]
) -> None:
    await services.made(service("a", ports=[{"name": "a", "port": 80}, {"name": "b", "port": 81}]))
    obj = (await services.patch("a", {"spec": {"ports": change}}, form=STRATEGIC_PATCH)).ok(200)
    assert {(port["name"], port["port"]) for port in obj["spec"]["ports"]} == ports


async def test_a_strategic_merge_replaces_a_map_on_demand(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", {"x": "1"}))
    change = {"data": {"$patch": "replace", "y": "2"}}
    assert (await configmaps.patch("a", change, form=STRATEGIC_PATCH)).ok(200)["data"] == {"y": "2"}


async def test_a_strategic_merge_adds_finalizers_and_takes_them_away(configmaps: Collection) -> None:
    """The job controller releases its pods in this way."""
    await configmaps.made(configmap("a", finalizers=["example.com/a"]))
    change: dict[str, Any] = {"metadata": {"finalizers": ["example.com/b"]}}
    obj = (await configmaps.patch("a", change, form=STRATEGIC_PATCH)).ok(200)
    assert set(obj["metadata"]["finalizers"]) == {"example.com/a", "example.com/b"}
    change = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    obj = (await configmaps.patch("a", change, form=STRATEGIC_PATCH)).ok(200)
    assert obj["metadata"]["finalizers"] == ["example.com/b"]
    await configmaps.patch("a", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("patch_type", [MERGE_PATCH, STRATEGIC_PATCH])
async def test_a_null_in_a_patch_removes_a_label(configmaps: Collection, patch_type: str) -> None:
    await configmaps.made(configmap("a", labels={"x": "1", "y": "2"}))
    obj = (await configmaps.patch("a", {"metadata": {"labels": {"x": None}}}, form=patch_type)).ok(200)
    assert obj["metadata"]["labels"] == {"y": "2"}
