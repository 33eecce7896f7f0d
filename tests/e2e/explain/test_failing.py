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
from support.explained import explained, runtime_with
from support.training import apply_runtime, python, trainjob

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [pytest.mark.slow(seconds=20), pytest.mark.asyncio(loop_scope="module")]

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
        ("install the Python package that has transformerz",),
    ),
    "crashes": (
        {},
        python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
        "ContainerFailed",
        ("exit code 139", "SIGSEGV", "/dev/shm"),
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


@pytest.mark.parametrize("name", CASES)
async def test_the_reason_comes_first(client: KubeClient, cluster_home: Path, name: str) -> None:
    if why := skipped(name):
        pytest.skip(why)
    _, _, cause, words = CASES[name]
    said = await explained(cluster_home, f"failing-{name}", cause, *words)
    failed = said["failedContainer"]
    assert failed["exitCode"] != 0
    assert failed["container"] in ("node", "fetch")
