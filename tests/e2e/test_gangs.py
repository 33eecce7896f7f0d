"""A gang that Kubernetes itself schedules, on a whole cluster: it starts or waits whole, also when it restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.embedded import embedded
from support.team import Team, team
from support.training import apply_runtime, initialized_runtime, python, runtime, until

from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

GPU = "nvidia.com/gpu"
CONFIGURATION = """
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
featureGates:
  TrainJobWorkloadAwareScheduling: true
"""
# The nodes meet; of the first attempt rank 0 then fails when the test says so.
NODE = """
import os, pathlib, sys, time
place, rank = pathlib.Path(os.environ["PLACE"]), os.environ["PET_NODE_RANK"]
attempt = "second" if (place / f"first-{rank}").exists() else "first"
(place / f"{attempt}-{rank}").touch()
while not all((place / f"{attempt}-{each}").exists() for each in "012"):
    time.sleep(0.05)
while attempt == "first":
    if rank == "0" and (place / "fail").exists():
        sys.exit(1)
    time.sleep(0.05)
"""


async def occupy(mine: Team, name: str) -> None:
    """Have a pod that takes one GPU as soon as it can."""
    container = {"name": "c", "image": "none", "command": ["sleep", "3600"], "resources": {"limits": {GPU: "1"}}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    await mine.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=mine.name)


async def runs(mine: Team, name: str) -> None:
    async def running() -> bool:
        pod = await mine.client.get(PODS, mine.name, name)
        return bool(pod["status"].get("phase") == "Running")

    await until(running)


async def waits_whole(mine: Team) -> None:
    """Wait until the three pods were refused, and see that none of them has a node."""

    async def refused() -> list[JsonObject] | None:
        pods = [each for each in await mine.pods("gang") if each["status"].get("phase") == "Pending"]
        tried = [each for each in pods if each["status"].get("conditions")]
        return tried if len(tried) == 3 else None

    assert [each["spec"].get("nodeName") for each in await until(refused)] == [None] * 3


@pytest.fixture
async def mine(tmp_path: Path) -> AsyncIterator[Team]:
    configuration = tmp_path / "config.yaml"
    configuration.write_text(CONFIGURATION)
    options = ("--workload-aware-scheduling", "--fake-gpus", "3", "--config", str(configuration))
    with embedded(tmp_path, *options) as home:
        async with team(home / ".trainmaster/kubeconfig", "gangs", tmp_path) as found:
            yield found


@pytest.mark.defect("B10")
async def test_a_gang_does_not_wait_for_pods_that_come_after_its_initializer(mine: Team) -> None:
    on = initialized_runtime("initialized")
    on["spec"]["scheduling"] = {}
    await apply_runtime(mine.client, on)
    job = mine.manifest("initialized", "", on="initialized")
    job["spec"]["trainer"] = {"numNodes": 2}
    await mine.client.create(TRAINJOBS, job)
    await mine.condition("initialized", "Complete")
    pods = await mine.pods("initialized")
    assert len({each["spec"]["schedulingGroup"]["podGroupName"] for each in pods}) == 2 < len(pods)


async def test_a_gang_of_three_waits_for_its_third_gpu_and_again_after_a_restart(mine: Team, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    gang = runtime("gang")
    gang["spec"]["scheduling"] = {"disruptionMode": "PodGroup"}
    gang["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 1}
    await apply_runtime(mine.client, gang)
    await occupy(mine, "first")
    await runs(mine, "first")
    job = mine.manifest("gang", "", on="gang")
    job["spec"]["trainer"] = {
        "numNodes": 3,
        "command": python(NODE),
        "env": [{"name": "PLACE", "value": str(place)}],
        "resourcesPerNode": {"limits": {GPU: "1"}},
    }
    await mine.client.create(TRAINJOBS, job)
    await waits_whole(mine)
    told = (await mine.cli("explain", "gang")).out
    assert "starts when 3 of its pods can; 0 have a node; 2 of 3 fit" in told
    await mine.client.delete(PODS, mine.name, "first")
    await until(lambda: all((place / f"first-{rank}").exists() for rank in "012"))
    await occupy(mine, "second")
    (place / "fail").touch()
    await runs(mine, "second")
    await waits_whole(mine)
    assert not list(place.glob("second-*"))
    await mine.client.delete(PODS, mine.name, "second")
    await mine.condition("gang", "Complete")
