"""Replacing objects: preconditions, what cannot change, and writes that change nothing."""

from __future__ import annotations

import pytest
from support.conformance import Client, Collection
from support.samples import configmap, lease, widget

from trainmaster.runtime.jsontree import JsonObject

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_an_update_replaces_the_object(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a", {"x": "1", "y": "2"}, labels={"l": "1"}))
    new = (await configmaps.put(configmap("a", {"x": "3"}))).ok(200)
    assert new["data"] == {"x": "3"}
    assert "labels" not in new["metadata"]
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])


@pytest.mark.parametrize("conditional", [True, False])
async def test_an_update_that_changes_nothing_keeps_the_resource_version(
    configmaps: Collection, conditional: bool
) -> None:
    """Controllers write what they want again and again: that must not wake anybody."""
    old = await configmaps.made(configmap("a", {"x": "1"}))
    sent = old if conditional else configmap("a", {"x": "1"})
    assert (await configmaps.put(sent)).ok(200)["metadata"] == old["metadata"]


async def test_a_stale_update_is_a_conflict(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a"))
    await configmaps.put(configmap("a", {"x": "1"}))
    status = (await configmaps.put({**old, "data": {"x": "2"}})).refused(409, "Conflict")
    assert status["message"] == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_stale_update_of_a_custom_resource_is_a_conflict(widgets: Collection) -> None:
    old = await widgets.made(widget("a"))
    (await widgets.patch("a", {"spec": {"size": 2}})).ok(200)
    status = (await widgets.put(old)).refused(409, "Conflict")
    assert MODIFIED in status["message"]


async def test_a_config_map_may_be_updated_without_a_resource_version(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    (await configmaps.put(configmap("a", {"x": "1"}))).ok(200)


async def test_a_custom_resource_may_not_be_updated_without_a_resource_version(widgets: Collection) -> None:
    """Tolerance: the printed value is 0 or 0x0."""
    await widgets.made(widget("a"))
    answer = await widgets.put(widget("a", size=2))
    assert answer.causes() == [("metadata.resourceVersion", "FieldValueInvalid")]
    assert "must be specified for an update" in answer.json["message"]


async def test_a_lease_may_not_be_updated_without_a_resource_version(leases: Collection) -> None:
    await leases.made(lease("a"))
    assert (await leases.put(lease("a", leaseDurationSeconds=5))).causes()[0][0] == "metadata.resourceVersion"


async def test_updating_a_missing_object_is_not_found(configmaps: Collection) -> None:
    (await configmaps.put(configmap("a"))).refused(404, "NotFound")


async def test_updating_a_missing_lease_creates_it(leases: Collection) -> None:
    """Leases are among the few kinds that a PUT may create."""
    obj = (await leases.put(lease("a"))).ok(201)
    assert obj["metadata"]["uid"]
    assert (await leases.read("a"))["spec"]["holderIdentity"] == "me"


async def test_an_update_must_carry_the_name(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    status = (await configmaps.put({"metadata": {}}, name="a")).refused(400, "BadRequest")
    assert "the name of the object (a based on URL) was undeterminable" in status["message"]


async def test_another_namespace_in_an_update_is_a_bad_request(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    assert "namespace" in (await configmaps.put(configmap("a", namespace="b"))).refused(400, "BadRequest")["message"]


async def test_the_creation_time_stays_whatever_is_sent(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a"))
    new = (await configmaps.put(configmap("a", creationTimestamp="2001-01-01T00:00:00Z"))).ok(200)
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]


async def test_the_generation_cannot_be_set(widgets: Collection) -> None:
    obj = await widgets.made(widget("a"))
    obj["metadata"]["generation"] = 9
    assert (await widgets.put(obj)).ok(200)["metadata"]["generation"] == 1


async def test_the_value_of_a_priority_class_cannot_change(client: Client) -> None:
    priorities = client.collection("scheduling.k8s.io/v1", "priorityclasses")
    name = (await priorities.made({"metadata": {"generateName": "conformance-"}, "value": 1}))["metadata"]["name"]
    try:
        assert [field for field, _ in (await priorities.patch(name, {"value": 2})).causes()] == ["value"]
    finally:
        await priorities.delete(name)


async def test_the_role_of_a_binding_cannot_change(client: Client, namespace: str) -> None:
    bindings = client.collection("rbac.authorization.k8s.io/v1", "rolebindings", namespace)
    reference: JsonObject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}
    await bindings.made({"metadata": {"name": "a"}, "roleRef": reference})
    answer = await bindings.patch("a", {"roleRef": {**reference, "name": "two"}})
    assert answer.causes() == [("roleRef", "FieldValueInvalid")]


async def test_a_fixed_field_of_a_custom_resource_cannot_change(widgets: Collection) -> None:
    """Tolerance: older servers print the type of the value in front of the message."""
    await widgets.made(widget("a", nested={"fixed": "x"}))
    answer = await widgets.patch("a", {"spec": {"nested": {"fixed": "y"}}})
    assert answer.causes() == [("spec.nested.fixed", "FieldValueInvalid")]
    assert answer.json["message"].endswith("fixed is fixed")


async def test_a_fixed_field_may_be_added_and_removed(widgets: Collection) -> None:
    """The rule compares two values; where one is missing there is nothing to compare."""
    await widgets.made(widget("a"))
    (await widgets.patch("a", {"spec": {"nested": {"fixed": "x"}}})).ok(200)
    (await widgets.patch("a", {"spec": {"nested": {"fixed": None}}})).ok(200)


async def test_labels_of_a_custom_resource_do_not_raise_the_generation(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    obj = (await widgets.patch("a", {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}})).ok(200)
    assert obj["metadata"]["generation"] == 1


async def test_the_spec_of_a_custom_resource_raises_the_generation(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    assert (await widgets.patch("a", {"spec": {"size": 2}})).ok(200)["metadata"]["generation"] == 2
    assert (await widgets.patch("a", {"spec": {"size": 2}})).ok(200)["metadata"]["generation"] == 2
