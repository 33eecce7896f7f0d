"""GPUs of a machine, played by --fake-gpus: which pod gets which, and what becomes of pods for which none is left."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.commands import TIMEOUT, client_of, trainmaster

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

UP = ("cluster", "up", "--detach", "--without", "manager", "--fake-gpus")
SHELL = {"CUDA_VISIBLE_DEVICES": "5,1,0,2"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A directory with a cluster of six GPUs, of which the shell lets it have four."""
    home = tmp_path_factory.mktemp("gpus")
    up = await trainmaster(*UP, "6", cwd=home, TMPDIR=str(home), **SHELL)
    assert (up.code, up.err) == (0, "")
    yield home
    assert (await trainmaster("cluster", "down", cwd=home)).code == 0


def pod(name: str, gpus: int, *, command: str = "exec sleep 600") -> JsonObject:
    limits = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    script = f'echo "$CUDA_VISIBLE_DEVICES in $CUDA_DEVICE_ORDER, $NCCL_HOSTID"; {command}'
    container = {"name": "c", "image": "none", "command": ["sh", "-c", script], "resources": limits}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def until(client: KubeClient, name: str, holds: Callable[[JsonObject], Any]) -> JsonObject:
    async with asyncio.timeout(TIMEOUT):
        while not holds(found := await client.get(PODS, "default", name)):
            await asyncio.sleep(0.05)
    return found


def waits(found: JsonObject) -> str:
    """Say why a pod is not bound to a node; empty if nobody has tried yet."""
    conditions = found["status"].get("conditions") or ()
    return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), "")


async def runs(client: KubeClient, name: str) -> set[str]:
    """Wait until a pod has said which GPUs it has; returns them."""
    await until(client, name, lambda found: found["status"].get("phase") == "Running")
    async with asyncio.timeout(TIMEOUT):
        while True:
            _, _, log = await client.raw("GET", f"/api/v1/namespaces/default/pods/{name}/log")
            if said := re.fullmatch(r"(\S*) in FASTEST_FIRST, trainmaster\n", log.decode()):
                return set(filter(None, said[1].split(",")))
            await asyncio.sleep(0.05)


async def test_two_pods_get_different_gpus_and_a_third_waits_for_them(home: Path) -> None:
    async with client_of(home / ".trainmaster" / "kubeconfig") as client:
        await asyncio.gather(*(client.create(PODS, pod(name, 2), namespace="default") for name in ("a", "b")))
        first, second = await runs(client, "a"), await runs(client, "b")
        assert (len(first), len(second)) == (2, 2)
        assert first | second == {"0", "1", "2", "5"}

        await client.create(PODS, pod("none", 0), namespace="default")
        assert await runs(client, "none") == set()

        await client.create(PODS, pod("c", 1), namespace="default")
        assert "Insufficient nvidia.com/gpu" in waits(await until(client, "c", waits))
        await client.delete(PODS, "default", "b")
        assert await runs(client, "c") <= second

        for name in ("a", "c", "none"):
            await client.delete(PODS, "default", name)


async def test_the_status_says_which_there_are(home: Path) -> None:
    status = await trainmaster("cluster", "status", cwd=home)
    (line,) = (line for line in status.out.splitlines() if line.startswith("gpus: "))
    assert line.split(maxsplit=1)[1] == (
        "4 of 6 (not real, by --fake-gpus), since CUDA_VISIBLE_DEVICES=5,1,0,2 where the cluster was started"
    )


async def test_a_restart_hands_all_of_them_out_again(home: Path) -> None:
    """What ran before counts as killed, and holds nothing; the shell has another say each time."""
    async with client_of(home / ".trainmaster" / "kubeconfig") as client:
        await client.create(PODS, pod("before", 4), namespace="default")
        await runs(client, "before")
    assert (await trainmaster("cluster", "down", cwd=home)).code == 0
    assert (await trainmaster(*UP, "6", cwd=home, TMPDIR=str(home), CUDA_VISIBLE_DEVICES="3")).code == 0
    async with client_of(home / ".trainmaster" / "kubeconfig") as client:
        await until(client, "before", lambda found: found["status"]["phase"] == "Failed")
        await client.create(PODS, pod("after", 1), namespace="default")
        assert await runs(client, "after") == {"3"}
