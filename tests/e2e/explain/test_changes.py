"""Jobs of which something changes while they wait or run, and those of more than one kind of pods: explain follows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.commands import client_of
from support.explained import delete_runtimes, explained, runtime_with
from support.job_faces import PYTORCHJOBS, explanation
from support.training import apply_runtime, pods, python, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS, Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.cluster import NODE_NAME
from trainmaster.runtime.jsontree import JsonObject, copy_tree

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
SLEEPS = python("import time; time.sleep(600)")
IMAGE = "registry.invalid/team/train:1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        yield client
        await delete_runtimes(client, "changes-")


@asynccontextmanager
async def job(client: KubeClient, name: str, obj: JsonObject | None = None, **spec: Any) -> AsyncIterator[None]:
    """A TrainJob on a runtime of its own, which is deleted in the end."""
    obj = obj or runtime_with(f"changes-{name}")
    await apply_runtime(client, obj)
    await client.create(
        TRAINJOBS, trainjob(name, on=obj["metadata"]["name"], **{"trainer": {"command": SLEEPS}, **spec})
    )
    try:
        yield
    finally:
        await client.delete(TRAINJOBS, "default", name)

        async def gone() -> bool:
            return not await pods(client, name)

        await until(gone)


@asynccontextmanager
async def v1_job(client: KubeClient, name: str, **containers: JsonObject) -> AsyncIterator[None]:
    """A PyTorchJob with one replica of each type, which is deleted in the end."""
    replicas = {
        each: {
            "replicas": 1,
            "restartPolicy": "Never",
            "template": {"spec": {"containers": [{"name": "pytorch", "image": "i", **container}]}},
        }
        for each, container in containers.items()
    }
    made = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": replicas}}
    await client.create(PYTORCHJOBS, {**made, "metadata": {"name": name, "namespace": "default"}})
    try:
        yield
    finally:
        await client.delete(PYTORCHJOBS, "default", name)


@asynccontextmanager
async def node_with(client: KubeClient, spec: JsonObject) -> AsyncIterator[None]:
    """The node with another specification."""
    await client.patch(NODES, None, NODE_NAME, {"spec": spec})
    try:
        yield
    finally:
        await client.patch(NODES, None, NODE_NAME, {"spec": dict.fromkeys(spec)})


async def running(client: KubeClient, name: str, *, nodes: int = 1) -> list[JsonObject]:
    """Wait until the pods of a job run; returns them."""

    async def found() -> list[JsonObject]:
        there = await pods(client, name)
        return there if [pod["status"].get("phase") for pod in there] == ["Running"] * nodes else []

    there: list[JsonObject] = await until(found)
    return there


async def evict(client: KubeClient, pod: JsonObject) -> None:
    path = f"{PODS.path('default', pod['metadata']['name'])}/eviction"
    status, _, _ = await client.raw("POST", path, body=b'{"apiVersion": "policy/v1", "kind": "Eviction"}')
    assert status == 201


async def goes_on(home: Path, name: str) -> None:
    """Wait until a job runs, and nothing is in its way."""

    async def runs() -> bool:
        said = await explanation(home, name)
        return bool(said["state"]["name"] == "Running" and not said["causes"])

    await until(runs)


async def test_an_eviction_by_the_api(client: KubeClient, cluster_home: Path) -> None:
    async with job(client, "evicted"):
        (pod,) = await running(client, "evicted")
        await evict(client, pod)
        await explained(cluster_home, "evicted", "Evicted", "EvictionByEvictionAPI")


async def test_an_eviction_after_which_the_node_takes_no_more_pods(client: KubeClient, cluster_home: Path) -> None:
    """As `kubectl drain` leaves it: the node is closed, which is the reason now."""
    trainer = {"numNodes": 2, "command": SLEEPS}
    async with job(client, "drained", runtime_with("changes-drained", backoff_limit=6), trainer=trainer):
        there = await running(client, "drained", nodes=2)
        async with node_with(client, {"unschedulable": True}):
            for pod in there:
                await evict(client, pod)
            await explained(cluster_home, "drained", "Unschedulable", f"kubectl uncordon {NODE_NAME}", among=2)


async def test_a_tainted_node_takes_the_job_when_the_taint_is_gone(client: KubeClient, cluster_home: Path) -> None:
    taint = {"key": "dedicated", "value": "others", "effect": "NoSchedule"}
    async with node_with(client, {"taints": [taint]}), job(client, "kept-out"):
        advice = f"kubectl taint nodes {NODE_NAME} dedicated=others:NoSchedule-"
        await explained(cluster_home, "kept-out", "Unschedulable", "dedicated=others:NoSchedule", advice)
        await client.patch(NODES, None, NODE_NAME, {"spec": {"taints": None}})
        await goes_on(cluster_home, "kept-out")


async def test_a_job_goes_on_when_what_was_missing_comes(client: KubeClient, cluster_home: Path) -> None:
    mounts = {"volumeMounts": [{"name": "late", "mountPath": "/late"}]}
    volumes = [{"name": "late", "configMap": {"name": "late"}}]
    async with job(client, "late", runtime_with("changes-late", volumes=volumes, container=mounts)):
        await explained(cluster_home, "late", "ContainerConfigError", "create the ConfigMap late")
        settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late", "namespace": "default"}}
        await client.create(CONFIGMAPS, {**settings, "data": {"epochs": "3"}})
        await goes_on(cluster_home, "late")


async def test_a_job_whose_time_to_live_is_over(client: KubeClient, cluster_home: Path) -> None:
    await apply_runtime(client, runtime_with("changes-short"))
    spec = {"trainer": {"command": ["true"]}, "ttlSecondsAfterFinished": 0}
    await client.create(TRAINJOBS, trainjob("short", on="changes-short", **spec))

    async def is_gone() -> bool:
        causes = (await explanation(cluster_home, "short"))["causes"]
        return [each["cause"] for each in causes] == ["TimeToLiveExpired"]

    await until(is_gone)


async def test_an_initializer_of_the_data_set(client: KubeClient, cluster_home: Path) -> None:
    obj = runtime_with("changes-initializer")
    jobs = obj["spec"]["template"]["spec"]["replicatedJobs"]
    fetches = copy_tree(jobs[0])
    fetches["name"] = "dataset-initializer"
    fetches["template"]["metadata"]["labels"] = {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}
    (container,) = fetches["template"]["spec"]["template"]["spec"]["containers"]
    container |= {"name": "dataset-initializer", "command": python("raise PermissionError('401: the set is gated')")}
    jobs[0]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    jobs.insert(0, fetches)
    async with job(client, "initializer", obj):
        words = ("PermissionError: 401: the set is gated", "give dataset-initializer a token")
        await explained(cluster_home, "initializer", "InitContainerFailed", *words)


async def test_ranks_that_are_told_different_sizes(client: KubeClient, cluster_home: Path) -> None:
    """Somebody scales a PyTorchJob that is not elastic: those that run know of one worker less than the new one."""
    async with v1_job(client, "disagree", Master={"command": SLEEPS}, Worker={"command": SLEEPS}):
        await goes_on(cluster_home, "pytorchjob/disagree")
        change = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}
        await client.patch(PYTORCHJOBS, "default", "disagree", change)
        words = ("WORLD_SIZE=2 in master 0 and 1 other; WORLD_SIZE=3 in worker 1",)
        await explained(cluster_home, "pytorchjob/disagree", "WorldSizeMismatch", *words)


async def test_an_image_of_workers_and_a_master_that_waits_for_them(client: KubeClient, cluster_home: Path) -> None:
    """The image is the reason."""
    async with v1_job(client, "no-workers", Master={"command": SLEEPS}, Worker={"image": IMAGE}):
        await explained(cluster_home, "pytorchjob/no-workers", "ImagePullFailed", IMAGE)
