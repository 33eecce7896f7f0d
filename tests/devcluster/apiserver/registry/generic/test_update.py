"""Changes: PUT, subresources, generations, conflicts, finalizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, JOBS, LEASES, NAMESPACES, PODS, GroupResource
from trainmaster.runtime.jsontree import copy_tree

WIDGETS = GroupResource("example.com", "widgets")


def config_map(**data: str) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "data": data}


async def widget(api: Api, **metadata: Any) -> dict[str, Any]:
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", **metadata},
        "spec": {"size": 1, "owner": "me"},
    }
    made: dict[str, Any] = copy_tree(await api.create(WIDGETS, obj, namespace="default"))
    return made


async def pod(api: Api) -> dict[str, Any]:
    obj = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    made: dict[str, Any] = copy_tree(await api.create(PODS, obj, namespace="default"))
    return made


async def test_a_put_replaces_the_object_and_keeps_its_identity(api: Api) -> None:
    made = await api.create(CONFIGMAPS, config_map(x="1"), namespace="default")
    changed = await api.update(CONFIGMAPS, config_map(y="2"), namespace="default")
    assert changed["data"] == {"y": "2"}
    for field in ("uid", "creationTimestamp"):
        assert changed["metadata"][field] == made["metadata"][field]
    assert int(changed["metadata"]["resourceVersion"]) == int(made["metadata"]["resourceVersion"]) + 1


async def test_a_put_that_changes_nothing_is_no_event(api: Api) -> None:
    """Level-triggered controllers would run in circles otherwise."""
    made = await api.create(CONFIGMAPS, config_map(x="1"), namespace="default")
    before = api.revision
    again = await api.update(
        CONFIGMAPS, config_map(x="1"), namespace="default", options=WriteOptions(field_manager="b")
    )
    assert again is made
    assert api.revision == before


async def test_numbers_and_booleans_are_different(api: Api, define: Any) -> None:
    """Python says that 1 == True; a change from one to the other must be stored."""
    await define()
    made = await widget(api)
    first = {**made, "status": {"done": 1}}
    made = await api.update(WIDGETS, first, namespace="default", subresource="status")
    changed = await api.update(WIDGETS, {**made, "status": {"done": True}}, namespace="default", subresource="status")
    assert changed["status"]["done"] is True


async def test_a_stale_resource_version_is_a_conflict(api: Api) -> None:
    made = copy_tree(await api.create(CONFIGMAPS, config_map(x="1"), namespace="default"))
    await api.update(CONFIGMAPS, config_map(x="2"), namespace="default")
    with pytest.raises(StatusError) as caught:
        await api.update(CONFIGMAPS, made, namespace="default")
    assert caught.value.code == 409
    assert caught.value.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


@pytest.mark.parametrize(
    ("change", "name", "code", "text"),
    [
        ({}, "b", 404, 'configmaps "b" not found'),
        ({"name": "c"}, "a", 400, "the name of the object (c) does not match the name on the URL (a)"),
        ({"uid": "other"}, "a", 409, "Precondition failed: UID in precondition: other"),
        ({"deletionTimestamp": "2020-01-01T00:00:00Z"}, "a", 422, "metadata.deletionTimestamp: Invalid value"),
    ],
)
async def test_an_object_cannot_become_another(
    api: Api, change: dict[str, Any], name: str, code: int, text: str
) -> None:
    await api.create(CONFIGMAPS, config_map(x="1"), namespace="default")
    obj = {"metadata": {"name": name, **change}, "data": {}}
    with pytest.raises(StatusError) as caught:
        await api.update(CONFIGMAPS, obj, namespace="default", name=name)
    assert caught.value.code == code
    assert text in caught.value.message


async def test_custom_resources_demand_a_resource_version(api: Api, define: Any) -> None:
    await define()
    made = await widget(api)
    del made["metadata"]["resourceVersion"]
    with pytest.raises(
        StatusError, match=r"metadata\.resourceVersion: Invalid value: 0: must be specified for an update"
    ):
        await api.update(WIDGETS, made, namespace="default")


async def test_the_generation_counts_changes_of_the_desired_state(api: Api, define: Any) -> None:
    await define()
    made = await widget(api)
    made["metadata"]["labels"] = {"a": "b"}
    made["metadata"]["generation"] = 99
    made = copy_tree(await api.update(WIDGETS, made, namespace="default"))
    assert made["metadata"]["generation"] == 1
    made["spec"]["size"] = 2
    made = copy_tree(await api.update(WIDGETS, made, namespace="default"))
    assert made["metadata"]["generation"] == 2
    made["status"] = {"ready": True}
    made = copy_tree(await api.update(WIDGETS, made, namespace="default", subresource="status"))
    assert made["metadata"]["generation"] == 2
    assert made["status"] == {"ready": True}


async def test_the_endpoints_write_only_their_part(api: Api, define: Any) -> None:
    await define()
    made = await widget(api)
    made["status"] = {"sneaked": True}
    made["spec"]["size"] = 7
    stored = copy_tree(await api.update(WIDGETS, made, namespace="default"))
    assert "status" not in stored
    stored["spec"]["size"] = 9
    stored["metadata"]["labels"] = {"a": "b"}
    stored["status"] = {"ready": True}
    stored = await api.update(WIDGETS, stored, namespace="default", subresource="status")
    assert (stored["spec"]["size"], stored["status"]) == (7, {"ready": True})
    assert "labels" not in stored["metadata"]


async def test_a_pod_status_may_carry_labels_and_release_finalizers(api: Api) -> None:
    made = await pod(api)
    made["metadata"]["labels"] = {"a": "b"}
    made["spec"]["containers"] = []
    made["status"]["phase"] = "Running"
    stored = await api.update(PODS, made, namespace="default", subresource="status")
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert stored["spec"]["containers"][0]["name"] == "a"
    assert stored["status"]["phase"] == "Running"


async def test_unknown_subresources_are_not_found(api: Api) -> None:
    await api.create(CONFIGMAPS, config_map(), namespace="default")
    with pytest.raises(StatusError) as caught:
        await api.update(CONFIGMAPS, config_map(), namespace="default", subresource="status")
    assert caught.value.code == 404


async def test_immutable_fields_of_custom_resources_stay(api: Api, define: Any) -> None:
    await define()
    made = await widget(api)
    made["spec"]["owner"] = "you"
    with pytest.raises(StatusError) as caught:
        await api.update(WIDGETS, made, namespace="default")
    assert caught.value.message == (
        'Widget.example.com "w" is invalid: spec.owner: Invalid value: "you": owner is immutable'
    )


async def test_times_in_metadata_are_compared_as_times(api: Api, define: Any) -> None:
    """Python's clients read times into datetime, and write them back with another zone designator."""
    await define()
    core = copy_tree(await api.create(CONFIGMAPS, config_map(), namespace="default"))
    for resource, made in ((CONFIGMAPS, core), (WIDGETS, await widget(api))):
        created = made["metadata"]["creationTimestamp"]
        made["metadata"]["creationTimestamp"] = created.replace("Z", "+00:00")
        updated = await api.update(resource, made, namespace="default")
        assert updated["metadata"]["creationTimestamp"] == created


async def test_only_new_problems_of_custom_resources_count(api: Api, define: Any) -> None:
    """A definition may become stricter: old objects must stay changeable."""
    crd = copy_tree(await define())
    made = await widget(api)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]["minimum"] = 5
    await api.update(GroupResource("apiextensions.k8s.io", "customresourcedefinitions"), crd)
    made["spec"]["mode"] = "slow"
    made = copy_tree(await api.update(WIDGETS, made, namespace="default"))
    assert made["spec"] == {"size": 1, "mode": "slow", "owner": "me"}
    made["spec"]["size"] = 2
    with pytest.raises(StatusError, match=r"spec\.size"):
        await api.update(WIDGETS, made, namespace="default")


async def test_the_last_finalizer_takes_the_object_with_it(api: Api, define: Any) -> None:
    await define()
    await widget(api, finalizers=["example.com/a", "example.com/b"])
    made, gone = await api.delete(WIDGETS, "default", "w")
    assert not gone
    assert made["metadata"]["generation"] == 2
    made = copy_tree(made)
    made["metadata"]["finalizers"] = ["example.com/b"]
    made = copy_tree(await api.update(WIDGETS, made, namespace="default"))
    assert made["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:05Z"
    made["metadata"]["finalizers"] = []
    await api.update(WIDGETS, made, namespace="default")
    assert api.list(WIDGETS)[0] == []


async def test_no_finalizer_may_join_a_deleted_object(api: Api, define: Any) -> None:
    await define()
    await widget(api, finalizers=["example.com/a"])
    made = copy_tree((await api.delete(WIDGETS, "default", "w"))[0])
    made["metadata"]["finalizers"].append("example.com/late")
    with pytest.raises(StatusError, match=r"metadata\.finalizers: Forbidden: no new finalizers can be added"):
        await api.update(WIDGETS, made, namespace="default")


async def test_pods_can_be_bound_once_and_hardly_changed(api: Api) -> None:
    made = await pod(api)
    binding: dict[str, Any] = {"namespace": "default", "subresource": "binding"}
    with pytest.raises(StatusError, match="spec: Forbidden: pod updates may not change fields other than"):
        await api.update(PODS, {**made, "spec": {**made["spec"], "nodeName": "node-1"}}, namespace="default")
    bound = {**made, "spec": {**made["spec"], "nodeName": "node-1", "hostname": "left-alone"}}
    made = copy_tree(await api.update(PODS, bound, **binding))
    assert made["spec"]["nodeName"] == "node-1"
    assert "hostname" not in made["spec"]
    with pytest.raises(StatusError, match='pods/binding "p": pod p is already assigned to node "node-1"'):
        await api.update(PODS, {**made, "spec": {**made["spec"], "nodeName": "node-2"}}, **binding)
    for change in ({"nodeName": "node-2"}, {"restartPolicy": "Never"}, {"hostname": "x"}):
        with pytest.raises(StatusError, match="spec: Forbidden: pod updates may not change fields other than"):
            await api.update(PODS, {**made, "spec": {**made["spec"], **change}}, namespace="default")
    made["spec"]["tolerations"].append({"operator": "Exists"})
    made["spec"]["containers"][0]["image"] = "y"
    assert (await api.update(PODS, made, namespace="default"))["spec"]["containers"][0]["image"] == "y"


def _parallelism(spec: dict[str, Any]) -> None:
    spec.update(parallelism=3, suspend=False)


def _completions(spec: dict[str, Any]) -> None:
    spec["completions"] = 9


def _image(spec: dict[str, Any]) -> None:
    spec["template"]["spec"]["containers"][0]["image"] = "y"


def _node_selector(spec: dict[str, Any]) -> None:
    spec["template"]["spec"]["nodeSelector"] = {"a": "b"}


@pytest.mark.parametrize(
    ("change", "suspended", "refused"),
    [
        (_parallelism, True, None),
        (_completions, True, "spec.completions"),
        (_image, True, "spec.template.spec"),
        (_image, False, "spec.template"),
        (_node_selector, True, None),
        (_node_selector, False, "spec.template"),
    ],
)
async def test_what_may_change_in_a_job(
    api: Api, change: Callable[[dict[str, Any]], None], suspended: bool, refused: str | None
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template, "suspend": suspended}}
    made = copy_tree(await api.create(JOBS, job, namespace="default"))
    change(made["spec"])
    if refused is None:
        assert (await api.update(JOBS, made, namespace="default"))["metadata"]["generation"] == 2
    else:
        with pytest.raises(StatusError) as caught:
            await api.update(JOBS, made, namespace="default")
        assert caught.value.details is not None
        assert [cause["field"] for cause in caught.value.details["causes"]] == [refused]


async def test_a_namespace_goes_when_it_is_finalized(api: Api) -> None:
    made, gone = await api.delete(NAMESPACES, None, "kubeflow")
    assert not gone
    assert made["status"]["phase"] == "Terminating"
    made = copy_tree(made)
    made["spec"]["finalizers"] = []
    await api.update(NAMESPACES, made)
    assert api.get(NAMESPACES, None, "kubeflow")["spec"]["finalizers"] == ["kubernetes"], "only /finalize writes them"
    made["metadata"].pop("resourceVersion")
    await api.update(NAMESPACES, made, subresource="finalize")
    with pytest.raises(StatusError, match='namespaces "kubeflow" not found'):
        api.get(NAMESPACES, None, "kubeflow")


async def test_an_unconditional_write_survives_another_writer(api: Api) -> None:
    """The hook is awaited, so another write can come between; one that names no version is simply repeated."""
    await api.create(CONFIGMAPS, config_map(x="0"), namespace="default")
    intrusions = 3

    async def intrude(operation: str, obj: dict[str, Any], old: Any) -> dict[str, Any]:
        nonlocal intrusions
        if obj["data"].get("x") == "mine" and intrusions:
            intrusions -= 1
            await api.update(CONFIGMAPS, config_map(x=str(intrusions)), namespace="default")
        return obj

    api.add_admission(CONFIGMAPS, intrude)
    patched, _ = await api.patch(CONFIGMAPS, "default", "a", {"data": {"x": "mine"}}, patch_type=PatchType.MERGE)
    assert patched["data"] == {"x": "mine"}
    assert intrusions == 0
    intrusions = 99
    with pytest.raises(StatusError) as caught:
        await api.update(CONFIGMAPS, config_map(x="mine"), namespace="default")
    assert caught.value.code == 409


async def test_a_dry_run_changes_nothing(api: Api) -> None:
    await api.create(CONFIGMAPS, config_map(x="1"), namespace="default")
    before = api.revision
    shown = await api.update(CONFIGMAPS, config_map(x="2"), namespace="default", options=WriteOptions(dry_run=True))
    assert shown["data"] == {"x": "2"}
    await api.delete(CONFIGMAPS, "default", "a", options=DeleteOptions(dry_run=True))
    assert api.revision == before


@pytest.mark.parametrize(
    "sent",
    [None, [{"manager": "x"}], [{"manager": "x", "operation": "Odd", "apiVersion": "v1", "fieldsV1": {}}]],
)
async def test_managed_fields_that_cannot_be_read_are_not_an_edit(api: Api, sent: Any) -> None:
    made = copy_tree(await api.create(CONFIGMAPS, config_map(x="1"), namespace="default"))
    before = made["metadata"]["managedFields"]
    made["metadata"]["managedFields"] = sent
    made["metadata"]["labels"] = {"a": "b"}
    changed = await api.update(CONFIGMAPS, made, namespace="default", options=WriteOptions(field_manager="me"))
    assert before[0] in changed["metadata"]["managedFields"]
    assert {entry["manager"] for entry in changed["metadata"]["managedFields"]} == {"unknown", "me"}


async def test_managed_fields_can_be_forgotten(api: Api) -> None:
    made = copy_tree(await api.create(CONFIGMAPS, config_map(x="1"), namespace="default"))
    made["metadata"]["managedFields"] = [{}]
    changed = await api.update(CONFIGMAPS, made, namespace="default")
    assert not changed["metadata"].get("managedFields")


@pytest.mark.parametrize("field", ["containers", "restartPolicy"])
async def test_an_unsound_change_is_refused_before_it_is_compared(api: Api, field: str) -> None:
    """Comparing relies on a sound object; a broken one must be a 422 and not a crash."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template, "suspend": True}}
    made = copy_tree(await api.create(JOBS, job, namespace="default"))
    del made["spec"]["template"]["spec"][field]
    with pytest.raises(StatusError) as caught:
        await api.update(JOBS, made, namespace="default")
    assert caught.value.code == 422


async def test_a_put_creates_what_may_be_created_so(api: Api) -> None:
    """Whatever version the client has seen of it: that lease is gone."""
    lease = {"metadata": {"name": "l", "resourceVersion": "99"}, "spec": {"holderIdentity": "me"}}
    made, created = await api.put(LEASES, lease, namespace="default", name="l")
    assert (created, made["metadata"]["resourceVersion"]) == (True, str(api.revision))
    again, created = await api.put(LEASES, made, namespace="default", name="l")
    assert (created, again) == (False, made)
    with pytest.raises(StatusError) as caught:
        await api.put(CONFIGMAPS, config_map(x="1"), namespace="default", name="a")
    assert caught.value.code == 404
