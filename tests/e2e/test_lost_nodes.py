"""Training that survives its nodes, on a cluster of three: one that vanishes, one that is drained, one that is bad."""

from collections.abc import AsyncIterator

import orjson
import pytest
import pytest_asyncio
from support.commands import eventually, trainmaster
from support.team import Team, team
from support.training import python

from trainmaster.controller.kube.rest.resources import NODES, PODS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.settings import FAILED_ANNOTATION
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAITS = """
import os, pathlib, time
rank = pathlib.Path(os.environ["PLACE"]) / os.environ["PET_NODE_RANK"]
if not rank.exists():
    rank.touch()
    {first}
"""
FOR_EVER = "time.sleep(3600)"
RANK_1_FAILS = "time.sleep(3600 if rank.name == '0' else 0); raise ValueError('my loss is NaN')"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Team]:
    """A namespace of a cluster with three nodes."""
    home = tmp_path_factory.mktemp("nodes")
    up = await trainmaster("cluster", "up", "--detach", "--nodes", "3", "--node-monitor-grace-period", "1", cwd=home)
    assert (up.code, up.err) == (0, "")
    async with team(home / ".trainmaster/kubeconfig", "surviving", home) as mine:
        yield mine
    assert (await trainmaster("cluster", "down", cwd=home)).code == 0


async def submit(mine: Team, name: str, first: str, policy: JsonObject) -> None:
    """Start a job of two nodes, which do something else the first time."""
    place = mine.directory / name
    place.mkdir()
    job = mine.manifest(name, "", nodes=2, resiliencePolicy=policy)
    env = [{"name": "PLACE", "value": str(place)}]
    job["spec"]["trainer"] = {"numNodes": 2, "command": python(WAITS.format(first=first)), "env": env}
    await mine.client.create(TRAINJOBS, job)
    await eventually(lambda: all((place / rank).exists() for rank in "01"))


async def nodes_of(mine: Team, name: str) -> list[str]:
    """The nodes of the pods of a job, by rank."""
    return [pod["spec"]["nodeName"] for pod in sorted(await mine.pods(name), key=lambda pod: pod["metadata"]["name"])]


async def survived(mine: Team, name: str) -> JsonObject:
    """Wait for the end of a job that was started anew once; returns the attempt."""
    await mine.condition(name, "Complete")
    [attempt] = (await mine.client.get(TRAINJOBS, mine.name, name))["status"]["resilience"]["attempts"]
    assert attempt["node"] not in await nodes_of(mine, name)
    return dict(attempt)


async def change(mine: Team, node: str, change: JsonObject) -> None:
    await mine.client.patch(NODES, None, node, change)


async def test_a_job_on_a_node_that_vanishes_goes_on_elsewhere(mine: Team) -> None:
    await submit(mine, "vanished", FOR_EVER, {"maxRestarts": 0, "nodes": {"lostAfter": "5s"}})
    first, second = await nodes_of(mine, "vanished")
    assert first != second, "they are spread"
    await change(mine, second, {"metadata": {"annotations": {FAILED_ANNOTATION: ""}}})
    attempt = await survived(mine, "vanished")
    assert (attempt["reason"], attempt["charged"], attempt["node"]) == ("Disrupted", False, second)
    assert f"DeletionByTrainmaster: Trainmaster: node {second} is not ready since" in attempt["message"]
    await change(mine, second, {"metadata": {"annotations": {FAILED_ANNOTATION: None}}})


async def test_a_job_on_a_node_that_is_drained_goes_on_elsewhere(mine: Team) -> None:
    await submit(mine, "drained", FOR_EVER, {"maxRestarts": 0})
    _, node = await nodes_of(mine, "drained")
    await change(mine, node, {"spec": {"unschedulable": True}})
    [pod] = [each for each in await mine.pods("drained") if each["spec"]["nodeName"] == node]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": pod["metadata"]}
    path = PODS.path(mine.name, pod["metadata"]["name"], "eviction")
    status, _, answer = await mine.client.raw("POST", path, body=orjson.dumps(body))
    assert status == 201, answer
    attempt = await survived(mine, "drained")
    assert (attempt["reason"], attempt["charged"], attempt["node"]) == ("Disrupted", False, node)
    await change(mine, node, {"spec": {"unschedulable": None}})


async def test_a_node_on_which_the_job_failed_is_avoided(mine: Team) -> None:
    await submit(mine, "avoiding", RANK_1_FAILS, {"maxRestarts": 1, "nodes": {"avoidAfter": 1}})
    attempt = await survived(mine, "avoiding")
    assert (attempt["reason"], attempt["charged"]) == ("Failed", True)
    status = (await mine.client.get(TRAINJOBS, mine.name, "avoiding"))["status"]["resilience"]
    assert [each["name"] for each in status["avoidedNodes"]] == [attempt["node"]]
