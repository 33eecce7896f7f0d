"""TrainJobs of several slices, with real processes: each node learns its own rank, and all meet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.commands import client_of
from support.training import RENDEZVOUS, apply_runtime, ended, pods, python, runtime, trainjob

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

SLICES, HOSTS = 3, 2


@pytest.fixture
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        yield client


def sliced(policy: str) -> JsonObject:
    obj = runtime(f"sliced-{policy}")
    obj["spec"]["mlPolicy"] = {policy: {}}
    obj["spec"]["template"]["spec"]["replicatedJobs"][0]["replicas"] = SLICES
    return obj


async def log_of(client: KubeClient, pod: JsonObject) -> str:
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/log"
    return (await client.raw("GET", path, accept="*/*"))[2].decode()


@pytest.mark.parametrize(
    ("policy", "rank", "total"),
    [
        ("jax", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
        ("torch", "PET_NODE_RANK", "PET_NNODES"),
        ("xgboost", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
    ],
)
async def test_every_node_of_every_slice_has_its_own_rank(
    client: KubeClient, policy: str, rank: str, total: str
) -> None:
    await apply_runtime(client, sliced(policy))
    script = (
        f"import os, sys; e = os.environ; print(e['{rank}'], e['{total}'], e['TRAINMASTER_SLICE_ID'], sys.argv[1:])"
    )
    trainer = {"numNodes": SLICES * HOSTS, "command": python(script), "args": ["a b", "$"]}
    name = f"ranks-{policy}"
    await client.create(TRAINJOBS, trainjob(name, on=f"sliced-{policy}", trainer=trainer))
    assert (await ended(client, name))["type"] == "Complete"
    (job,) = (await client.get(JOBSETS, "default", name))["spec"]["replicatedJobs"]
    assert (job["replicas"], job["template"]["spec"]["parallelism"]) == (SLICES, HOSTS)
    logs = sorted([await log_of(client, pod) for pod in await pods(client, name)])
    assert logs == [f"{each} {SLICES * HOSTS} {each // HOSTS} ['a b', '$']\n" for each in range(SLICES * HOSTS)]


async def test_the_nodes_of_all_slices_meet(client: KubeClient) -> None:
    await apply_runtime(client, sliced("torch"))
    env = [{"name": "JOB", "value": "node"}]
    trainer = {"numNodes": SLICES * HOSTS, "command": python(RENDEZVOUS), "env": env}
    await client.create(TRAINJOBS, trainjob("slices-meet", on="sliced-torch", trainer=trainer))
    assert (await ended(client, "slices-meet"))["type"] == "Complete"
    logs = [await log_of(client, pod) for pod in await pods(client, "slices-meet")]
    assert f"met {[f'node-{rank}'.encode() for rank in range(1, SLICES * HOSTS)]}\n" in logs
