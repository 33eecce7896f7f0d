"""Jobs whose containers fail, each for a reason of its own, on a whole cluster: explain finds it in first place."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.commands import client_of
from support.explained import delete_runtimes, explained, explanation, runtime_with
from support.training import apply_runtime, python, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject, copy_tree

pytestmark = pytest.mark.asyncio(loop_scope="module")

PYTORCHJOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
HUNGRY = "held = bytearray(300 << 20); import time; time.sleep(600)"
RANK_1 = "import os, time\nif os.environ['PET_NODE_RANK'] != '1': time.sleep(600)\n"
ALONE = """
import jax
jax.distributed.initialize("127.0.0.1:29711", num_processes=2, process_id=0, initialization_timeout=2)
"""
"""The first of two processes of JAX, the other one of which never comes."""

LIMITED = {"container": {"resources": {"limits": {"memory": "150Mi"}}}}
INIT = {"initContainers": [{"name": "fetch", "image": "i", "command": python("raise OSError('no such bucket')")}]}
INIT["initContainers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError"

CASES: dict[str, tuple[JsonObject, list[str], str, tuple[str, ...]]] = {
    "exits": (
        {},
        python(RANK_1 + "raise ValueError('my loss is NaN')"),
        "ContainerFailed",
        ("rank 1: container node failed with exit code 1", "ValueError: my loss is NaN", "trainmaster logs"),
    ),
    "no-program": (
        {},
        ["torchrum", "train.py"],
        "ContainerFailed",
        ("exit code 128, StartError", '"torchrum": executable file not found', "correct the command"),
    ),
    "no-package": (
        {},
        python("import transformerz"),
        "ContainerFailed",
        ("correct the name transformerz, or install the package that has it",),
    ),
    "crashes": (
        {},
        python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
        "ContainerFailed",
        ("exit code 139", "SIGSEGV", "read its log"),
    ),
    "memory": (
        LIMITED,
        python(RANK_1 + HUNGRY),
        "OutOfMemory",
        ("rank 1", "exit code 137, OOMKilled", "its limit of memory is 150Mi", "300Mi would be twice that"),
    ),
    "init": (
        INIT,
        ["true"],
        "InitContainerFailed",
        ("container fetch failed with exit code 1", "OSError: no such bucket"),
    ),
    "names": (
        {},
        python("import socket; socket.getaddrinfo('explained-node-0-7.nowhere', 29500)"),
        "NameResolutionFailed",
        ("socket.gaierror", "exit code 1"),
    ),
    "rendezvous": ({}, python(ALONE), "RendezvousTimeout", ("DEADLINE_EXCEEDED", "network policy")),
}


def skipped(name: str) -> str:
    """Why a case cannot happen here; empty if it can."""
    if name == "rendezvous" and find_spec("jax") is None:
        return "JAX is not installed"
    if name == "memory" and not sys.platform.startswith("linux"):
        return "limits of memory are kept on Linux only"
    return ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    """A cluster on which all the jobs fail side by side."""
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        for name, (pod, command, _, _) in CASES.items():
            if not skipped(name):
                await apply_runtime(client, runtime_with(f"failing-{name}", **pod))
                nodes = 2 if name in ("exits", "memory") else 1
                trainer: dict[str, Any] = {"numNodes": nodes, "command": command}
                job = trainjob(f"failing-{name}", on=f"failing-{name}", trainer=trainer)
                await client.create(TRAINJOBS, job)
        yield client
        for name in CASES:
            if not skipped(name):
                await client.delete(TRAINJOBS, "default", f"failing-{name}")
        await delete_runtimes(client, "failing-")


async def test_an_initializer_of_the_data_set(client: KubeClient, cluster_home: Path) -> None:
    obj = runtime_with("failing-initializer")
    jobs = obj["spec"]["template"]["spec"]["replicatedJobs"]
    fetches = copy_tree(jobs[0])
    fetches["name"] = "dataset-initializer"
    fetches["template"]["metadata"]["labels"] = {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}
    (container,) = fetches["template"]["spec"]["template"]["spec"]["containers"]
    container |= {"name": "dataset-initializer", "command": python("raise PermissionError('401: the set is gated')")}
    jobs[0]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    jobs.insert(0, fetches)
    await apply_runtime(client, obj)
    await client.create(TRAINJOBS, trainjob("failing-initializer", on="failing-initializer"))
    words = ("PermissionError: 401: the set is gated", "give dataset-initializer a token")
    await explained(cluster_home, "failing-initializer", "InitContainerFailed", *words)
    await client.delete(TRAINJOBS, "default", "failing-initializer")


async def test_ranks_that_are_told_different_sizes(client: KubeClient, cluster_home: Path) -> None:
    """Somebody scales a PyTorchJob that is not elastic: those that run know of one worker less than the new one."""
    container = {"name": "pytorch", "image": "example.com/train:1", "command": python("import time; time.sleep(600)")}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    replicas = {"Master": replica, "Worker": replica}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": replicas}}
    await client.create(PYTORCHJOBS, {**job, "metadata": {"name": "disagree", "namespace": "default"}})

    async def runs() -> bool:
        said = await explanation(cluster_home, "pytorchjob/disagree")
        return bool(said["state"]["name"] == "Running" and not said["causes"])

    await until(runs)
    change = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}
    await client.patch(PYTORCHJOBS, "default", "disagree", change)
    words = ("WORLD_SIZE=2 in master 0 and 1 other; WORLD_SIZE=3 in worker 1",)
    await explained(cluster_home, "pytorchjob/disagree", "WorldSizeMismatch", *words)
    await client.delete(PYTORCHJOBS, "default", "disagree")


@pytest.mark.parametrize("name", CASES)
async def test_the_reason_comes_first(client: KubeClient, cluster_home: Path, name: str) -> None:
    if why := skipped(name):
        pytest.skip(why)
    _, _, cause, words = CASES[name]
    said = await explained(cluster_home, f"failing-{name}", cause, *words)
    failed = said["failedContainer"]
    assert failed["exitCode"] != 0
    assert failed["container"] in ("node", "fetch")
