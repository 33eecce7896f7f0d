"""DELETE over HTTPS: options, responses, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from support.apiserver import CONFIGMAPS_PATH, configmap, send

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.testing.envtest import Environment


async def test_delete_tells_whether_the_object_is_gone(devcluster_server: Environment) -> None:
    _, created, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, configmap())
    wrong = {"preconditions": {"uid": "other"}}
    assert (await send(devcluster_server, "DELETE", f"{CONFIGMAPS_PATH}/a", wrong))[0] == 409
    status, gone, _ = await send(
        devcluster_server, "DELETE", f"{CONFIGMAPS_PATH}/a", {"propagationPolicy": "Background"}
    )
    assert (status, gone["status"]) == (200, "Success")
    assert gone["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    held = configmap("b")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await send(devcluster_server, "POST", CONFIGMAPS_PATH, held)
    status, lingering, _ = await send(devcluster_server, "DELETE", f"{CONFIGMAPS_PATH}/b")
    assert status == 200
    assert lingering["kind"] == "ConfigMap"
    assert "deletionTimestamp" in lingering["metadata"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"gracePeriodSeconds": "soon"}, 400),
        ({"preconditions": ["x"]}, 400),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"dryRun": ["All"]}, 200),
    ],
)
async def test_delete_options_are_checked(devcluster_server: Environment, options: dict[str, Any], code: int) -> None:
    await send(devcluster_server, "POST", CONFIGMAPS_PATH, configmap())
    assert (await send(devcluster_server, "DELETE", f"{CONFIGMAPS_PATH}/a", options))[0] == code
    assert devcluster_server.api.get(CONFIGMAPS, "default", "a")


async def test_delete_of_a_selection(devcluster_server: Environment) -> None:
    for name in ("a", "b"):
        obj = configmap(name)
        obj["metadata"]["labels"] = {"name": name}
        await send(devcluster_server, "POST", CONFIGMAPS_PATH, obj)
    status, deleted, _ = await send(devcluster_server, "DELETE", CONFIGMAPS_PATH, labelSelector="name=a")
    assert (status, deleted["kind"], len(deleted["items"])) == (200, "ConfigMapList", 1)
    assert [record.metadata["name"] for record in devcluster_server.api.list(CONFIGMAPS, "default")[0]] == ["b"]
