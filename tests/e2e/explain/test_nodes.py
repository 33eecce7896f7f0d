"""Jobs whose pods are taken away, or whose node takes none: explain finds the reason in first place.

Each test has the node for itself, and leaves it as it was.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.commands import client_of
from support.explained import explained, explanation, runtime_with
from support.training import apply_runtime, pods, python, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.cluster import NODE_NAME
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
SLEEPS = python("import time; time.sleep(600)")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        yield client


@asynccontextmanager
async def job(client: KubeClient, name: str, **pod: Any) -> AsyncIterator[None]:
    """A job of one pod, which is deleted in the end."""
    await apply_runtime(client, runtime_with(name, **pod))
    await client.create(TRAINJOBS, trainjob(name, on=name, trainer={"command": SLEEPS}))
    try:
        yield
    finally:
        await client.delete(TRAINJOBS, "default", name)

        async def gone() -> bool:
            return not await pods(client, name)

        await until(gone)


@asynccontextmanager
async def node_with(client: KubeClient, spec: JsonObject) -> AsyncIterator[None]:
    """The node with another specification."""
    await client.patch(NODES, None, NODE_NAME, {"spec": spec})
    try:
        yield
    finally:
        await client.patch(NODES, None, NODE_NAME, {"spec": dict.fromkeys(spec)})


async def running(client: KubeClient, name: str) -> JsonObject:
    """Wait until the pod of a job runs; returns it."""

    async def found() -> JsonObject | None:
        return next((pod for pod in await pods(client, name) if pod["status"].get("phase") == "Running"), None)

    pod: JsonObject = await until(found)
    return pod


async def test_an_eviction_by_the_api(client: KubeClient, cluster_home: Path) -> None:
    async with job(client, "evicted"):
        pod = await running(client, "evicted")
        path = f"{PODS.path('default', pod['metadata']['name'])}/eviction"
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
        status, _, _ = await client.raw("POST", path, body=json.dumps(eviction).encode())
        assert status == 201
        await explained(cluster_home, "evicted", "Evicted", "EvictionByEvictionAPI")


async def test_a_tainted_node_takes_the_job_when_the_taint_is_gone(client: KubeClient, cluster_home: Path) -> None:
    taint = {"key": "dedicated", "value": "others", "effect": "NoSchedule"}
    async with node_with(client, {"taints": [taint]}):
        await apply_runtime(client, runtime_with("kept-out"))
        await client.create(TRAINJOBS, trainjob("kept-out", on="kept-out", trainer={"command": SLEEPS}))
        advice = f"kubectl taint nodes {NODE_NAME} dedicated=others:NoSchedule-"
        await explained(cluster_home, "kept-out", "Unschedulable", "dedicated=others:NoSchedule", advice)
    await running(client, "kept-out")
    said = await explanation(cluster_home, "kept-out")
    assert not said["causes"], said["causes"]
    await client.delete(TRAINJOBS, "default", "kept-out")
