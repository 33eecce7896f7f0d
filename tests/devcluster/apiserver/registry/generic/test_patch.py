"""PATCH in its four types."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, GroupResource

WIDGETS = GroupResource("example.com", "widgets")
ALICE = WriteOptions(field_manager="alice")
BOB = WriteOptions(field_manager="bob")


@pytest.fixture
async def existing(api: Api) -> dict[str, Any]:
    return await api.create(
        CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}, namespace="default", options=ALICE
    )


async def patch(api: Api, body: Any, patch_type: PatchType, name: str = "a", **options: Any) -> dict[str, Any]:
    obj, _ = await api.patch(CONFIGMAPS, "default", name, body, patch_type=patch_type, options=WriteOptions(**options))
    return obj


@pytest.mark.parametrize(
    ("patch_type", "body"),
    [
        (PatchType.JSON, [{"op": "replace", "path": "/data/x", "value": "3"}, {"op": "remove", "path": "/data/y"}]),
        (PatchType.JSON, b'[{"op":"add","path":"/data","value":{"x":"3"}}]'),
        (PatchType.MERGE, {"data": {"x": "3", "y": None}}),
        (PatchType.STRATEGIC, {"data": {"$patch": "replace", "x": "3"}}),
    ],
)
async def test_each_type_changes_the_object(
    api: Api, existing: dict[str, Any], patch_type: PatchType, body: Any
) -> None:
    patched = await patch(api, body, patch_type)
    assert patched["data"] == {"x": "3"}
    assert existing["data"] == {"x": "1", "y": "2"}, "the stored version is shared and must not change"


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
    with pytest.raises(StatusError) as caught:
        await patch(api, body, patch_type)
    assert caught.value.code == code
    assert api.revision == before


def applied(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


async def test_applying_a_status_writes_nothing_else(api: Api, define: Any) -> None:
    await define()
    head = {"apiVersion": "example.com/v1", "kind": "Widget"}
    await api.patch(WIDGETS, "default", "w", {**head, "spec": {"size": 1}}, patch_type=PatchType.APPLY, options=ALICE)
    body = {**head, "metadata": {"labels": {"a": "b"}}, "spec": {"size": 9}, "status": {"ready": True}}
    made, _ = await api.patch(
        WIDGETS, "default", "w", body, patch_type=PatchType.APPLY, subresource="status", options=BOB
    )
    assert (made["spec"]["size"], made["status"]) == (1, {"ready": True})
    assert "labels" not in made["metadata"]
    assert made["metadata"]["generation"] == 1
    entry = next(each for each in made["metadata"]["managedFields"] if each["manager"] == "bob")
    assert entry["subresource"] == "status"
    assert entry["fieldsV1"].keys() == {"f:status"}


@pytest.mark.usefixtures("existing")
async def test_an_apply_cannot_change_the_uid(api: Api) -> None:
    with pytest.raises(StatusError, match="field is immutable") as caught:
        await patch(api, {**applied(x="1"), "metadata": {"name": "a", "uid": "other"}}, PatchType.APPLY)
    assert caught.value.code == 422
    assert "metadata.uid" in caught.value.message


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
