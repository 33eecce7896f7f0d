"""Updates and patches."""

from typing import Any

import pytest
from support.apiserver import assert_refused

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, JOBS, PODS, GroupResource
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


async def test_numbers_and_booleans_are_different(api: Api, define: Any) -> None:
    """Python says that 1 == True; a change from one to the other must be stored."""
    await define()
    made = await widget(api)
    first = {**made, "status": {"done": 1}}
    made = await api.update(WIDGETS, first, namespace="default", subresource="status")
    changed = await api.update(WIDGETS, {**made, "status": {"done": True}}, namespace="default", subresource="status")
    assert changed["status"]["done"] is True


async def test_a_pod_status_may_carry_labels_and_release_finalizers(api: Api) -> None:
    made = await pod(api)
    made["metadata"]["labels"] = {"a": "b"}
    made["spec"]["containers"] = []
    made["status"]["phase"] = "Running"
    stored = await api.update(PODS, made, namespace="default", subresource="status")
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert stored["spec"]["containers"][0]["name"] == "a"
    assert stored["status"]["phase"] == "Running"


async def test_times_in_metadata_are_compared_as_times(api: Api, define: Any) -> None:
    """Python's clients read times into datetime, and write them back with another zone designator."""
    await define()
    core = copy_tree(await api.create(CONFIGMAPS, config_map(), namespace="default"))
    for resource, made in ((CONFIGMAPS, core), (WIDGETS, await widget(api))):
        created = made["metadata"]["creationTimestamp"]
        made["metadata"]["creationTimestamp"] = created.replace("Z", "+00:00")
        updated = await api.update(resource, made, namespace="default")
        assert updated["metadata"]["creationTimestamp"] == created


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
    await assert_refused(api.update(CONFIGMAPS, config_map(x="mine"), namespace="default"), 409)


_ENTRY = {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
_NOT_FIELDS: list[Any] = [{"f:a": 1}, *({each: {}} for each in ("a", "x:a", "k:{", "k:[]", "v:x", "i:x"))]


@pytest.mark.parametrize(
    "sent",
    [
        *(None, [{"manager": "x"}]),
        *([{**_ENTRY, **odd}] for odd in ({"operation": "Odd"}, {"fieldsType": "FieldsV2"})),
        *([{**_ENTRY, "fieldsV1": fields}] for fields in _NOT_FIELDS),
    ],
    ids=str,
)
async def test_managed_fields_that_cannot_be_read_are_not_an_edit(api: Api, sent: Any) -> None:
    made = copy_tree(await api.create(CONFIGMAPS, config_map(x="1"), namespace="default"))
    before = made["metadata"]["managedFields"]
    made["metadata"]["managedFields"] = sent
    made["metadata"]["labels"] = {"a": "b"}
    changed = await api.update(CONFIGMAPS, made, namespace="default", options=WriteOptions(field_manager="me"))
    assert before[0] in changed["metadata"]["managedFields"]
    assert {entry["manager"] for entry in changed["metadata"]["managedFields"]} == {"unknown", "me"}


@pytest.mark.parametrize("field", ["containers", "restartPolicy"])
async def test_an_unsound_change_is_refused_before_it_is_compared(api: Api, field: str) -> None:
    """Comparing relies on a sound object; a broken one must be a 422 and not a crash."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template, "suspend": True}}
    made = copy_tree(await api.create(JOBS, job, namespace="default"))
    del made["spec"]["template"]["spec"][field]
    await assert_refused(api.update(JOBS, made, namespace="default"), 422)


ALICE = WriteOptions(field_manager="alice")


@pytest.fixture
async def existing(api: Api) -> dict[str, Any]:
    return await api.create(
        CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}, namespace="default", options=ALICE
    )


async def patch(api: Api, body: Any, patch_type: PatchType, name: str = "a", **options: Any) -> dict[str, Any]:
    obj, _ = await api.patch(CONFIGMAPS, "default", name, body, patch_type=patch_type, options=WriteOptions(**options))
    return obj


@pytest.mark.parametrize(
    ("patch_type", "body", "code"),
    [
        (PatchType.JSON, b"{", 400),
        (PatchType.JSON, [{"op": "replace", "path": "", "value": 1}], 422),
        (PatchType.MERGE, {"kind": "Secret"}, 400),
        (PatchType.MERGE, {"data": {"x": 1}}, 422),
        (PatchType.STRATEGIC, {"data": {"$patch": "explode"}}, 400),
    ],
)
@pytest.mark.usefixtures("existing")
async def test_bad_patches_change_nothing(api: Api, patch_type: PatchType, body: Any, code: int) -> None:
    before = api.revision
    await assert_refused(patch(api, body, patch_type), code)
    assert api.revision == before


async def test_an_applied_value_of_another_type_is_no_typed_patch(api: Api) -> None:
    with pytest.raises(StatusError) as caught:
        await patch(
            api,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": 1}},
            PatchType.APPLY,
            field_manager="bob",
        )
    assert (caught.value.code, caught.value.reason) == (500, "")
    assert caught.value.message.startswith(
        "failed to create typed patch object (default/a; /v1, Kind=ConfigMap): .data.x:"
    )
