"""The status subresource: what each endpoint writes, and what it leaves alone."""

from __future__ import annotations

from support.conformance import JSON_PATCH, STRATEGIC_PATCH, Client, Collection, definition, installed, managers
from support.samples import configmap, job, pod, widget


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


async def test_a_status_is_replaced(widgets: Collection) -> None:
    obj = await widgets.made(widget("a"))
    obj["status"] = {"phase": "A"}
    obj["spec"]["size"] = 9
    new = (await widgets.put(obj, subresource="status")).ok(200)
    assert (new["spec"]["size"], new["status"]) == (1, {"phase": "A"})


async def test_a_stale_status_is_a_conflict(widgets: Collection) -> None:
    obj = await widgets.made(widget("a"))
    await widgets.patch("a", {"spec": {"size": 2}})
    (await widgets.put({**obj, "status": {"phase": "A"}}, subresource="status")).refused(409, "Conflict")


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


async def test_a_new_pod_is_pending_whatever_it_says(pods: Collection) -> None:
    assert (await pods.made({**pod("a"), "status": {"phase": "Running"}}))["status"]["phase"] == "Pending"


async def test_a_new_job_has_no_status_whatever_it_says(jobs: Collection) -> None:
    obj = await jobs.made({**job("a"), "status": {"succeeded": 5}})
    assert not obj["status"].get("succeeded")


async def test_the_spec_of_a_job_raises_the_generation(jobs: Collection) -> None:
    assert (await jobs.made(job("a")))["metadata"]["generation"] == 1
    obj = (await jobs.patch("a", {"spec": {"activeDeadlineSeconds": 5}})).ok(200)
    assert obj["metadata"]["generation"] == 2
    obj = (await jobs.patch("a", {"metadata": {"labels": {"l": "1"}}})).ok(200)
    assert obj["metadata"]["generation"] == 2


async def test_a_config_map_has_no_status(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    assert (await configmaps.patch("a", {"status": {}}, subresource="status")).status == 404


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
