"""TrainJobs from submission to their end, on a whole cluster with real processes."""

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest
from support.commands import client_of, eventually, processes_of, trainmaster
from support.machine import FOUND
from support.training import (
    RENDEZVOUS,
    apply_runtime,
    conditions,
    conditions_of,
    ended,
    initialized_runtime,
    log_of,
    pods,
    python,
    runtime,
    trainjob,
    until,
)

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

MANY = 200


@pytest.fixture
async def client(client: KubeClient) -> KubeClient:
    await apply_runtime(client, runtime())
    return client


@pytest.mark.parametrize("mode", ["namespaces", "rewriting"])
async def test_the_nodes_of_a_job_meet_in_either_mode_of_networking(tmp_path: Path, mode: str) -> None:
    """The mode that was asked for is used and shown; only where names are rewritten do programs see it."""
    if mode == "namespaces" and FOUND.mode != mode:
        pytest.skip(FOUND.reason)
    up = await trainmaster("cluster", "up", "--detach", "--networking", mode, cwd=tmp_path)
    assert up.code == 0, up.err
    try:
        assert re.search(rf"networking: +{mode}: ", (await trainmaster("cluster", "status", cwd=tmp_path)).out)
        async with client_of(tmp_path / ".trainmaster" / "kubeconfig") as client:
            await apply_runtime(client, runtime())
            script = RENDEZVOUS + 'print(os.environ["PET_MASTER_ADDR"])'
            trainer = {"numNodes": 2, "command": python(script), "env": [{"name": "JOB", "value": "x"}]}
            await client.create(TRAINJOBS, trainjob("meets", trainer=trainer))
            assert (await ended(client, "meets"))["type"] == "Complete"
            address = {"namespaces": "meets-node-0-0.meets", "rewriting": "127.0.0.1"}[mode]
            logs = [await log_of(client, pod["metadata"]["name"]) for pod in await pods(client, "meets")]
            assert sorted(logs) == [f"{address}\n", f"met [b'x-1']\n{address}\n"]
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)


SCHEDULERS = {"coscheduling": "scheduler-plugins-scheduler", "volcano": "volcano"}


@pytest.mark.defect("B10")
@pytest.mark.parametrize("policy", SCHEDULERS)
async def test_a_gang_does_not_wait_for_pods_that_come_after_its_initializer(client: KubeClient, policy: str) -> None:
    name = f"initialized-{policy}"
    on = initialized_runtime(name, schedulerName=SCHEDULERS[policy])
    on["spec"]["podGroupPolicy"] = {policy: {}}
    await apply_runtime(client, on)
    await client.create(TRAINJOBS, trainjob(name, on=name, trainer={"numNodes": 2}))
    assert (await ended(client, name))["type"] == "Complete"
    assert len(await pods(client, name)) == 3


async def test_two_hundred_jobs_complete(client: KubeClient) -> None:
    names = {f"many-{number:03}" for number in range(MANY)}
    await asyncio.gather(*(client.create(TRAINJOBS, trainjob(name)) for name in names))

    async def all_complete() -> bool:
        jobs = (await client.list(TRAINJOBS, "default"))["items"]
        return names <= {job["metadata"]["name"] for job in jobs if "Complete" in conditions_of(job)}

    await until(all_complete)


async def test_the_controller_killed_in_mid_job_changes_nothing(tmp_path: Path) -> None:
    """Its own cluster, since a killed manager would disturb other tests."""
    await trainmaster("cluster", "up", "--detach", cwd=tmp_path)
    state = tmp_path / ".trainmaster"
    try:
        async with client_of(state / "kubeconfig") as client:
            await apply_runtime(client, runtime())
            script = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)"
            await client.create(TRAINJOBS, trainjob("goes-on", trainer={"command": python(script)}))
            await until(lambda: pods(client, "goes-on"))
            killed = _manager_of(state)
            os.kill(killed, signal.SIGKILL)
            (tmp_path / "go").touch()
            assert (await ended(client, "goes-on"))["type"] == "Complete"
            assert _manager_of(state) != killed
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)


def _manager_of(state: Path) -> int:
    return int(re.findall(r"manager started.*?pid=(\d+)", (state / "cluster.log").read_text())[-1])


async def test_the_cluster_killed_in_mid_job_ends_the_job_correctly_when_it_is_back(tmp_path: Path) -> None:
    """The processes die with it; by their restart policy they run again, and the job ends as if nothing had been."""
    await trainmaster("cluster", "up", "--detach", cwd=tmp_path)
    state, marker = tmp_path / ".trainmaster", "killed-with-its-cluster"
    try:
        async with client_of(state / "kubeconfig") as client:
            await apply_runtime(client, runtime(backoff_limit=6, restart_policy="OnFailure"))
            go = str(tmp_path / "go")
            script = f"import os, time # {marker}\nwhile not os.path.exists({go!r}): time.sleep(0.02)"
            await client.create(TRAINJOBS, trainjob("survives", trainer={"numNodes": 2, "command": python(script)}))
            await eventually(lambda: len(processes_of(marker)) >= 2)
        server = int(re.findall(r"pid (\d+)", (await trainmaster("cluster", "status", cwd=tmp_path)).out)[0])
        os.kill(server, signal.SIGKILL)
        await eventually(lambda: not processes_of(marker))
        Path(go).touch()
        assert (await trainmaster("cluster", "up", "--detach", cwd=tmp_path)).code == 0
        async with client_of(state / "kubeconfig") as client:
            assert (await ended(client, "survives"))["type"] == "Complete"
            restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in await pods(client, "survives")]
            assert restarts == [1, 1]
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)


async def test_jobs_that_lack_what_an_admission_plugin_might_add_block_the_trainjob(client: KubeClient) -> None:
    """The JobSet is taken; that no Job comes of it is told by its controller in an event only."""
    incomplete = runtime("incomplete")
    pod = incomplete["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "nowhere", "mountPath": "/data"}]
    await apply_runtime(client, incomplete)
    await client.create(TRAINJOBS, trainjob("incomplete", on="incomplete"))

    async def blocked() -> JsonObject | None:
        return (await conditions(client, "incomplete")).get("Blocked")

    condition = await until(blocked)
    assert condition["reason"] == "JobCreationFailed"
    assert 'the Jobs of JobSet "incomplete" are refused: ' in condition["message"]
    assert 'volumeMounts[0].name: Not found: "nowhere"' in condition["message"]
