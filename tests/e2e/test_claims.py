"""A TrainJob that claims devices, on a whole cluster with dynamic resource allocation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.commands import client_of
from support.training import apply_runtime, ended, pods, python, runtime, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

GROUP, VERSION = "resource.k8s.io", "v1"
CLASSES = Resource(GROUP, VERSION, "DeviceClass", "deviceclasses", False)
SLICES = Resource(GROUP, VERSION, "ResourceSlice", "resourceslices", False)
TEMPLATES = Resource(GROUP, VERSION, "ResourceClaimTemplate", "resourceclaimtemplates", True)
CLAIMS = Resource(GROUP, VERSION, "ResourceClaim", "resourceclaims", True)
DRIVER = "gpu.example.com"


def thing(resource: Resource, name: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": name, **({"namespace": "default"} if resource.namespaced else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


@pytest.fixture
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    """A cluster whose node has six devices, and a template for claims of two."""
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(6)]
    exactly = {"deviceClassName": DRIVER, "count": 2}
    claim = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        for resource, obj in (
            (CLASSES, thing(CLASSES, DRIVER, {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]})),
            (SLICES, thing(SLICES, "six", {"driver": DRIVER, "pool": pool, "allNodes": True, "devices": devices})),
            (TEMPLATES, thing(TEMPLATES, "two-gpus", {"spec": claim})),
        ):
            await client.create(resource, obj)
        await apply_runtime(client, runtime())
        yield client


async def test_a_trainjob_gets_the_devices_that_it_claims_and_gives_them_back(
    client: KubeClient, tmp_path: Path
) -> None:
    """Three nodes of two devices each: that is all there are."""
    go = tmp_path / "go"
    script = (
        "import os, time\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        "print(os.environ['PET_NPROC_PER_NODE'])"
    )
    trainer = {
        "numNodes": 3,
        "command": python(script),
        "resourceClaimsPerNode": [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}],
    }
    await client.create(TRAINJOBS, trainjob("claims", trainer=trainer))

    async def all_given() -> bool:
        claims = (await client.list(CLAIMS, "default"))["items"]
        allocations = [(claim.get("status") or {}).get("allocation") for claim in claims]
        given = [each["device"] for found in allocations if found for each in found["devices"]["results"]]
        return len(set(given)) == 6

    await until(all_given)
    go.touch()
    assert (await ended(client, "claims"))["type"] == "Complete"
    found = await pods(client, "claims")
    assert [pod["spec"]["resourceClaims"] for pod in found] == [trainer["resourceClaimsPerNode"]] * 3
    assert [pod["spec"]["containers"][0]["resources"]["claims"] for pod in found] == [[{"name": "gpus"}]] * 3
    path = f"/api/v1/namespaces/default/pods/{found[0]['metadata']['name']}/log"
    assert (await client.raw("GET", path, accept="*/*"))[2] == b"auto\n", "torchrun counts the GPUs that it finds"

    async def all_back() -> bool:
        claims = (await client.list(CLAIMS, "default"))["items"]
        return not any((claim.get("status") or {}).get("allocation") for claim in claims)

    await until(all_back)
