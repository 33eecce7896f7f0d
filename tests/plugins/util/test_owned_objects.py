"""What pods mount, with a real manager: made once, made again when it is gone, and left alone while pods run."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from support.commands import eventually
from support.objects import replicated_job, runtime_object, trainjob_object
from support.stack import Stack, api_server, manager

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, NAMESPACES, SECRETS, Resource
from trainmaster.controller.reconciling import controller, expectations
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject


async def appears(stack: Stack, resource: Resource, name: str, *, other_than: str | None = None) -> JsonObject:
    async def look() -> JsonObject | None:
        with contextlib.suppress(NotFound):
            found: JsonObject = await stack.client.get(resource, "team", name)
            return found if found["metadata"]["uid"] != other_than else None
        return None

    found: JsonObject = await eventually(look)
    return found


@pytest.mark.defect("B30")
async def test_a_lost_key_alone_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody watches Secrets: after a while it is tried whether one is there."""
    monkeypatch.setattr(expectations, "KNOWN_FOR", 0.5)
    monkeypatch.setattr(controller, "UNOBSERVED_INTERVAL", 0.1)
    on = runtime_object(replicated_job(ancestor=None), replicated_job("launcher"), policy={"mpi": {}})
    bare: dict[str, Any] = trainjob_object()
    bare["metadata"] = {"name": "demo", "namespace": "team"}
    async with api_server(tmp_path) as stack, manager(stack.access):
        await stack.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await stack.client.create(TRAINING_RUNTIMES, on)
        await stack.client.create(TRAINJOBS, bare)
        jobset = await appears(stack, JOBSETS, "demo")
        secret = await appears(stack, SECRETS, "demo-mpi-ssh-auth")
        mine = {"data": {"hostfile": "mine\n"}}
        await stack.client.patch(CONFIGMAPS, "team", "demo-mpi-hostfile", mine)
        for _ in range(2):  # the reconcile that made the first is over when the second is there
            await stack.client.delete(SECRETS, "team", "demo-mpi-ssh-auth", uid=secret["metadata"]["uid"])
            fresh = await appears(stack, SECRETS, "demo-mpi-ssh-auth", other_than=secret["metadata"]["uid"])
            assert fresh["data"]["ssh-privatekey"] != secret["data"]["ssh-privatekey"]
            secret = fresh
        hostfile = await stack.client.get(CONFIGMAPS, "team", "demo-mpi-hostfile")
        assert hostfile["data"] == mine["data"], "pods run with the one that they were started with"
        again = await stack.client.get(JOBSETS, "team", "demo")
        assert again["metadata"]["resourceVersion"] == jobset["metadata"]["resourceVersion"]
        # The next TrainJob of the name has a key of its own, as soon as that of the first is collected.
        await stack.client.delete(TRAINJOBS, "team", "demo")
        successor = await stack.client.create(TRAINJOBS, bare)
        for left in (JOBSETS, CONFIGMAPS, SECRETS):
            for each in (await stack.client.list(left, "team"))["items"]:
                await stack.client.delete(left, "team", each["metadata"]["name"])
        fresh = await appears(stack, SECRETS, "demo-mpi-ssh-auth", other_than=secret["metadata"]["uid"])
        assert fresh["metadata"]["ownerReferences"][0]["uid"] == successor["metadata"]["uid"]
