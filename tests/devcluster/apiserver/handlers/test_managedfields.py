"""What clients write into `metadata.managedFields`: of any shape, it never breaks a write."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from support.apiserver import CONFIGMAPS_PATH, configmap, send

from trainmaster.devcluster.testing.envtest import Environment

APPLY = "application/apply-patch+yaml"
PATH = f"{CONFIGMAPS_PATH}/a"


def entry(fields: Any, **changes: Any) -> dict[str, Any]:
    """An entry of managedFields with some fields."""
    known = {"manager": "odd", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z"}
    return {**known, "fieldsType": "FieldsV1", "fieldsV1": fields, **changes}


def nested(element: str, levels: int) -> dict[str, Any]:
    """A path of one element over and over."""
    fields: dict[str, Any] = {}
    for _ in range(levels):
        fields = {element: fields}
    return fields


NO_FIELDS: list[Any] = [None, 0, "x", [], {"f:data": 0}, {"f:data": None}, {"f:data": []}, {"": {}}]
ODD: list[Any] = [
    *(None, 0, "x", {}, [], [None], ["x"], [[]], [{}, {}], [{"manager": 1}]),
    *([entry(fields)] for fields in NO_FIELDS),
    *([entry({"f:data": {element: {}}})] for element in (".", "f:", "f:k", "k:", "k:{", "k:[]", "k:{}", 'k:{"a":{}}')),
    *([entry({"f:data": {element: {}}})] for element in ("v:", "v:x", "v:1e999", "i:0", "i:-1", "i:x", "x:y", "\x00")),
    *([entry({"f:data": {f"{kind}:{'[' * 300}{']' * 300}": {}}})] for kind in "kvf"),
    *([entry({"f:data": nested("f:k", levels)})] for levels in (1, 50, 140)),
    [entry({"f:metadata": {"f:managedFields": {}, "f:name": {}}, "f:nowhere": {"f:b": {}}, "f:data": {}})],
    *([entry({"f:data": {"f:k": {}}}, **{name: 7})] for name in ("manager", "operation", "apiVersion", "time")),
    [entry({"f:data": {"f:k": {}}}, operation="Apply", apiVersion="nowhere/v9", subresource="odd")],
    [entry({"f:data": {"f:k": {}}}, manager="m" * 5000, time="never")],
    [entry({"f:data": {"f:k": {}}}, manager=f"m{number}") for number in range(50)],
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: orjson.dumps(odd).decode()[:40])
async def test_managed_fields_of_any_shape_break_no_write(devcluster_server: Environment, odd: Any) -> None:
    server = devcluster_server
    _, created, _ = await send(server, "POST", CONFIGMAPS_PATH, configmap(k="v"))
    created["metadata"]["managedFields"] = odd
    status, answer, _ = await send(server, "PUT", PATH, {**created, "data": {"k": "w"}})
    assert status in (200, 400, 422), answer
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x", "l": "y"}}
    for data in ({"k": "x", "l": "y"}, {"k": "x"}):
        wanted["data"] = data
        body = orjson.dumps(wanted)
        query = {"fieldManager": "me", "force": "true"}
        status, applied, _ = await send(server, "PATCH", PATH, body, content_type=APPLY, **query)
        assert (status, applied["data"]["k"]) == (200, "x"), applied
    status, answer, _ = await send(server, "PUT", PATH, {**configmap(k="z"), "metadata": {"name": "a"}})
    assert (status, answer["data"]["k"]) == (200, "z")
