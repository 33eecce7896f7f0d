"""How a manager resizes an elastic TrainJob, in virtual time: in place, else by another JobSet; also if it crashes."""

from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import World

from trainmaster.controller.kube.rest.errors import Invalid, ServerError
from trainmaster.runtime.jsontree import JsonObject

ACTIVE = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
IMMUTABLE = Invalid(status=422, reason="Invalid", message="spec.replicatedJobs: field is immutable")


async def started(world: World | None = None, **spec: Any) -> World:
    world = world or World()
    policy = {"torch": {"elasticPolicy": {"minNodes": 1, "maxNodes": 4}}}
    world.put(trainjob_object(trainer={"numNodes": 2}, **spec), runtime_object(policy=policy))
    await world.reconcile()
    await run(world)
    return world


async def run(world: World) -> None:
    """Have the JobSet run, and its pods tell nothing."""
    world.change("JobSet", status={"replicatedJobsStatus": [ACTIVE], "restarts": 0})
    await world.reconcile_after(5)


def patch(world: World, nodes: int) -> None:
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "trainer": {"numNodes": nodes}})


def size(world: World) -> int:
    [job] = world.find("JobSet")["spec"]["replicatedJobs"]
    nodes: int = job["template"]["spec"]["parallelism"]
    assert job["template"]["spec"]["completions"] == nodes
    return nodes


def resilience(world: World) -> JsonObject:
    status: JsonObject = world.find("TrainJob")["status"]["resilience"]
    return status


def sizes(world: World) -> list[int]:
    return [each["nodes"] for each in resilience(world)["worldSizes"]]


def resized(world: World) -> list[str]:
    return [each for each in world.events if each.startswith("resized")]


async def renew(world: World) -> None:
    """Have the JobSet that is deleted go, and the next one run."""
    assert world.find("JobSet")["metadata"]["deletionTimestamp"]
    world.remove("JobSet")
    await world.reconcile_after(5)
    await run(world)


@pytest.mark.parametrize(("nodes", "crashes"), [(4, False), (1, False), (4, True)])
async def test_a_jobset_that_can_change_its_size_keeps_its_pods(nodes: int, crashes: bool) -> None:
    world = await started()
    uid = world.find("JobSet")["metadata"]["uid"]
    patch(world, nodes)
    if crashes:  # between the JobSet and the status
        world.refusals["patch status"] = ServerError(status=500, reason="InternalError", message="gone")
        with pytest.raises(ServerError):
            await world.reconcile_after(5)
        del world.refusals["patch status"]
        world.restart()
    await world.reconcile_after(5)
    await world.reconcile_after(5)
    assert (size(world), world.find("JobSet")["metadata"]["uid"]) == (nodes, uid)
    assert sizes(world) == [2, nodes]
    selector = "jobset.sigs.k8s.io/jobset-name=demo,jobset.sigs.k8s.io/replicatedjob-name=node"
    assert (resilience(world)["nodes"], resilience(world)["selector"]) == (nodes, selector)
    assert not resilience(world).keys() & {"attempts", "resizing"}
    assert resized(world) == [f"resized from 2 to {nodes} nodes"]
    assert "Blocked" not in world.conditions


async def test_a_definition_without_a_field_of_the_ledger_costs_one_write() -> None:
    """That of the release before, for instance: charts do not replace definitions."""
    world = World()
    store = world.store

    def pruned(obj: JsonObject) -> JsonObject:
        for field in ("nodes", "selector"):
            ((obj.get("status") or {}).get("resilience") or {}).pop(field, None)
        return store(obj)

    world.store = pruned  # type: ignore[method-assign]
    await started(world)
    patch(world, 3)
    await world.reconcile_after(5)
    await world.reconcile_after(5)
    assert sizes(world) == [2, 3]
    world.requests.clear()
    for _ in range(10):
        await world.reconcile_after(60)
    assert ("patch status" in world.requests, world.events) == (False, ["resized from 2 to 3 nodes"])


@pytest.mark.parametrize("crashes", [False, True])
async def test_else_each_change_costs_one_attempt_that_is_not_charged(crashes: bool) -> None:
    world = await started()
    for number, (before, nodes) in enumerate([(2, 4), (4, 1)]):
        world.refusals["apply JobSet"] = IMMUTABLE
        patch(world, nodes)
        for _ in range(4):
            if crashes:
                world.restart()
            await world.reconcile_after(5)
        del world.refusals["apply JobSet"]
        await renew(world)
        last = resilience(world)["attempts"][-1]
        assert (last["number"], last["reason"], last["charged"]) == (number, "Resized", False)
        assert last["message"].startswith(f"{before} nodes become {nodes}; this cluster's JobSets cannot")
        assert size(world) == nodes
    assert (sizes(world), len(resilience(world)["attempts"])) == ([2, 4, 1], 2)
    assert resized(world) == ["resized from 2 to 4 nodes", "resized from 4 to 1 nodes"]
    assert "Blocked" not in world.conditions


async def test_a_suspended_job_has_the_new_size_when_it_is_resumed() -> None:
    world = await started(suspend=True)
    patch(world, 3)
    await world.reconcile_after(5)
    await renew(world)
    assert (size(world), resilience(world).get("attempts")) == (3, None)


@pytest.mark.parametrize("limits", ["many", "1:" + "9" * 5000], ids=len)
async def test_limits_that_somebody_has_spoilt_resize_nothing(limits: str) -> None:
    world = await started()
    jobset = world.find("JobSet")
    jobset["metadata"]["annotations"]["trainmaster.dev/elastic-nodes"] = limits
    world.change("JobSet", metadata=jobset["metadata"])
    patch(world, 4)
    await world.reconcile_after(5)
    assert size(world) == 2


async def test_what_is_beyond_the_limits_changes_nothing() -> None:
    world = await started()
    patch(world, 5)
    await world.reconcile_after(5)
    assert size(world) == 2
    assert "must be between 1 and 4" in world.conditions["Blocked"]["message"]
