"""Updates of objects and of their status."""

import pytest
from support.conformance import JSON_PATCH, STRATEGIC_PATCH, Client, Collection, definition, installed, managers
from support.samples import configmap, job, lease, pod, widget

from trainmaster.runtime.jsontree import JsonObject

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_an_update_replaces_the_object(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a", {"x": "1", "y": "2"}, labels={"l": "1"}))
    new = (await configmaps.put(configmap("a", {"x": "3"}, creationTimestamp="2001-01-01T00:00:00Z"))).ok(200)
    assert new["data"] == {"x": "3"}
    assert "labels" not in new["metadata"]
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])


@pytest.mark.parametrize("conditional", [True, False])
async def test_an_update_without_a_change_keeps_the_resource_version(configmaps: Collection, conditional: bool) -> None:
    """Controllers write what they want again and again: that must not wake anybody."""
    old = await configmaps.made(configmap("a", {"x": "1"}))
    sent = old if conditional else configmap("a", {"x": "1"})
    assert (await configmaps.put(sent)).ok(200)["metadata"] == old["metadata"]


async def test_a_stale_update_is_a_conflict(configmaps: Collection, widgets: Collection) -> None:
    old = await configmaps.made(configmap("a"))
    await configmaps.put(configmap("a", {"x": "1"}))
    status = (await configmaps.put({**old, "data": {"x": "2"}})).refused(409, "Conflict")
    assert status["message"] == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    assert status["details"] == {"name": "a", "kind": "configmaps"}
    old = await widgets.made(widget("a"))
    (await widgets.patch("a", {"spec": {"size": 2}})).ok(200)
    assert MODIFIED in (await widgets.put(old)).refused(409, "Conflict")["message"]


async def test_a_config_map_may_be_updated_without_a_resource_version(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    (await configmaps.put(configmap("a", {"x": "1"}))).ok(200)


async def test_others_may_not_be_updated_without_a_resource_version(widgets: Collection, leases: Collection) -> None:
    """Tolerance: the printed value is 0 or 0x0."""
    await widgets.made(widget("a"))
    answer = await widgets.put(widget("a", size=2))
    assert answer.causes() == [("metadata.resourceVersion", "FieldValueInvalid")]
    assert "must be specified for an update" in answer.json["message"]
    await leases.made(lease("a"))
    assert (await leases.put(lease("a", leaseDurationSeconds=5))).causes()[0][0] == "metadata.resourceVersion"


async def test_updating_a_missing_object_is_not_found(configmaps: Collection) -> None:
    (await configmaps.put(configmap("a"))).refused(404, "NotFound")


async def test_updating_a_missing_lease_creates_it(leases: Collection) -> None:
    """Leases are among the few kinds that a PUT may create."""
    assert (await leases.put(lease("a"))).ok(201)["metadata"]["uid"]
    assert (await leases.read("a"))["spec"]["holderIdentity"] == "me"


async def test_an_update_must_carry_the_name_and_no_other_namespace(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    status = (await configmaps.put({"metadata": {}}, name="a")).refused(400, "BadRequest")
    assert "the name of the object (a based on URL) was undeterminable" in status["message"]
    assert "namespace" in (await configmaps.put(configmap("a", namespace="b"))).refused(400, "BadRequest")["message"]


async def test_only_the_spec_of_a_custom_resource_raises_the_generation(widgets: Collection) -> None:
    obj = await widgets.made(widget("a"))
    obj["metadata"]["generation"] = 9
    assert (await widgets.put(obj)).ok(200)["metadata"]["generation"] == 1
    obj = (await widgets.patch("a", {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}})).ok(200)
    assert obj["metadata"]["generation"] == 1
    assert (await widgets.patch("a", {"spec": {"size": 2}})).ok(200)["metadata"]["generation"] == 2
    assert (await widgets.patch("a", {"spec": {"size": 2}})).ok(200)["metadata"]["generation"] == 2


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


async def test_a_fixed_field_of_a_custom_resource_may_be_added_and_removed_but_not_changed(widgets: Collection) -> None:
    """The rule compares two values; where one is missing there is nothing to compare.

    Tolerance: older servers print the type of the value in front of the message.
    """
    await widgets.made(widget("a"))
    (await widgets.patch("a", {"spec": {"nested": {"fixed": "x"}}})).ok(200)
    answer = await widgets.patch("a", {"spec": {"nested": {"fixed": "y"}}})
    assert answer.causes() == [("spec.nested.fixed", "FieldValueInvalid")]
    assert answer.json["message"].endswith("fixed is fixed")
    (await widgets.patch("a", {"spec": {"nested": {"fixed": None}}})).ok(200)


async def test_each_endpoint_writes_its_part_only(widgets: Collection) -> None:
    old = await widgets.made(widget("a"))
    change = {"spec": {"size": 9}, "status": {"phase": "A"}, "metadata": {"labels": {"l": "1"}}}
    obj = (await widgets.patch("a", change, subresource="status")).ok(200)
    assert (obj["spec"]["size"], obj["status"], obj["metadata"]["generation"]) == (1, {"phase": "A"}, 1)
    assert "labels" not in obj["metadata"]
    assert int(obj["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    assert (await widgets.get("a", subresource="status")).ok(200) == obj
    assert (await widgets.patch("a", {"status": {"phase": "A"}}, subresource="status")).ok(200) == obj
    assert (await widgets.put(obj, subresource="status")).ok(200) == obj
    obj = (await widgets.patch("a", {"spec": {"size": 2}, "status": {"phase": "B"}})).ok(200)
    assert (obj["spec"]["size"], obj["status"]) == (2, {"phase": "A"})


async def test_a_change_through_the_status_that_is_ignored_is_no_change(widgets: Collection) -> None:
    old = await widgets.made(widget("a"))
    assert (await widgets.patch("a", {"spec": {"size": 9}}, subresource="status")).ok(200) == old


async def test_a_status_is_replaced_unless_it_is_stale(widgets: Collection) -> None:
    obj = await widgets.made(widget("a"))
    obj["status"] = {"phase": "A"}
    obj["spec"]["size"] = 9
    new = (await widgets.put(obj, subresource="status")).ok(200)
    assert (new["spec"]["size"], new["status"]) == (1, {"phase": "A"})
    await widgets.patch("a", {"spec": {"size": 2}})
    (await widgets.put({**new, "status": {"phase": "B"}}, subresource="status")).refused(409, "Conflict")


async def test_a_status_takes_a_json_patch(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    patch = [{"op": "add", "path": "/status", "value": {"phase": "A"}}]
    assert (await widgets.patch("a", patch, form=JSON_PATCH, subresource="status")).ok(200)["status"] == {"phase": "A"}


async def test_the_writer_of_a_status_owns_it_as_such(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    change = {"status": {"phase": "A"}}
    obj = (await widgets.patch("a", change, subresource="status", fieldManager="boss")).ok(200)
    assert managers(obj)["boss", "Update", "status"] == {"f:status": {".": {}, "f:phase": {}}}


async def test_the_status_of_a_missing_object_is_not_found(widgets: Collection) -> None:
    (await widgets.patch("a", {"status": {}}, subresource="status")).refused(404, "NotFound")


async def test_a_kind_without_the_subresource_has_an_ordinary_status(client: Client, namespace: str) -> None:
    crd = definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, subresources={})
    async with installed(client, crd, namespace=namespace) as things:
        head = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Thing", "metadata": {"name": "a"}}
        assert (await things.made({**head, "spec": {}, "status": {"phase": "A"}}))["status"] == {"phase": "A"}
        assert (await things.get("a", subresource="status")).status == 404
        obj = (await things.patch("a", {"status": {"phase": "B"}})).ok(200)
        assert (obj["status"], obj["metadata"]["generation"]) == ({"phase": "B"}, 2)


async def test_the_status_of_a_pod_is_written_apart(pods: Collection) -> None:
    await pods.made(pod("a"))
    condition = {"type": "example.com/Ready", "status": "True"}
    obj = (
        await pods.patch("a", {"status": {"conditions": [condition]}}, form=STRATEGIC_PATCH, subresource="status")
    ).ok()
    assert "example.com/Ready" in {each["type"] for each in obj["status"]["conditions"]}
    (await pods.patch("a", {"status": {"phase": "Failed"}})).ok(200)
    assert (await pods.read("a"))["status"]["phase"] == "Pending"
    (await pods.client.send("DELETE", pods.at("a", "status"))).refused(405, "MethodNotAllowed")


async def test_the_conditions_of_a_pod_are_merged_by_type(pods: Collection) -> None:
    await pods.made(pod("a"))
    for name in ("example.com/One", "example.com/Two"):
        change = {"status": {"conditions": [{"type": name, "status": "True"}]}}
        obj = (await pods.patch("a", change, form=STRATEGIC_PATCH, subresource="status")).ok(200)
    assert {"example.com/One", "example.com/Two"} <= {each["type"] for each in obj["status"]["conditions"]}


async def test_new_pods_are_pending_and_new_jobs_without_status_in_any_case(pods: Collection, jobs: Collection) -> None:
    assert (await pods.made({**pod("a"), "status": {"phase": "Running"}}))["status"]["phase"] == "Pending"
    assert not (await jobs.made({**job("a"), "status": {"succeeded": 5}}))["status"].get("succeeded")


async def test_an_error_in_a_status_names_the_place_in_it(client: Client, namespace: str) -> None:
    """Only the field of the cause is that of the whole object."""
    crd = definition({"type": "object"})
    part = {"type": "object", "properties": {"percent": {"type": "integer", "maximum": 100}}}
    status = {"type": "object", "properties": {"part": part}}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = status
    async with installed(client, crd, namespace=namespace) as things:
        await things.made({"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Thing", "metadata": {"name": "a"}})
        answer = await things.patch("a", {"status": {"part": {"percent": 101}}}, subresource="status")
    [cause] = answer.refused(422, "Invalid")["details"]["causes"]
    assert cause["field"] == "status.part.percent"
    assert cause["message"] == "Invalid value: 101: part.percent in body should be less than or equal to 100"
