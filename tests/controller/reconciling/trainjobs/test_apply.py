"""What the writes of a plan look like, and what follows when they fail or meet something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import KEY, World, jobset_of, world_with

from trainmaster.controller.kube.rest.errors import AlreadyExists, Conflict, TooManyRequests, TransportError
from trainmaster.controller.reconciling.outcomes import DONE, ExpectationsPending
from trainmaster.runtime.jsontree import JsonObject


async def test_a2_every_apply_carries_all_that_we_want() -> None:
    """Also the repeated one: what it left out, the server would take away."""
    world = world_with(suspend=True)
    await world.reconcile()
    first = world.applied[-1]
    world.change(
        "JobSet", spec={**world.find("JobSet")["spec"], "network": {"enableDNSHostnames": False}, "suspend": True}
    )
    world.change("JobSet", spec={"suspend": True})
    await world.reconcile()
    again = world.applied[-1]
    assert again is not first
    assert again | {"metadata": {k: v for k, v in again["metadata"].items() if k != "uid"}} == first


def with_defaults_in_items(world: World) -> None:
    """Have a server that sets defaults in the items of an atomic list, as kube-apiserver does of its own kinds."""

    def default(written: JsonObject) -> None:
        if written["kind"] == "JobSet":
            for rule in written["spec"]["failurePolicy"]["rules"]:
                rule.setdefault("targetReplicatedJobs", [])
            world.store(written)

    world.on_write = default


async def test_a6_a_default_in_an_item_of_an_atomic_list_is_no_reason_to_write_again() -> None:
    world = world_with(suspend=True)
    runtime = runtime_object()
    runtime["spec"]["template"]["spec"]["failurePolicy"] = {"rules": [{"name": "a", "action": "FailJobSet"}]}
    world.put(runtime)
    with_defaults_in_items(world)
    for _ in range(3):
        await world.reconcile()
        world.clock.step(3600)
    assert world.requests.count("apply JobSet") == 1
    # Who comes after a restart does not know how the field came there: we may have wanted it once.
    successor = World()
    successor.put(*world.server.values())
    with_defaults_in_items(successor)
    for _ in range(3):
        await successor.reconcile()
        successor.clock.step(3600)
    assert successor.requests.count("apply JobSet") == 1


def _nulls(tree: Any, path: str = "") -> Iterator[str]:
    if tree is None:
        yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield from _nulls(value, f"{path}.{name}")


async def test_a4_no_null_is_applied_and_an_empty_map_stays_what_its_author_meant() -> None:
    """A null would be an opinion about a field that nobody has one about; an empty `emptyDir` is a volume."""
    world = World()
    runtime = runtime_object(policy={"torch": {}})
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0] |= {"env": [], "args": None}
    pod["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    world.put(trainjob_object(trainer={"numNodes": 2, "env": []}, labels=None), runtime)
    await world.reconcile()
    assert [list(_nulls(obj)) for obj in world.applied] == [[], []]
    job = world.applied[1]["spec"]["replicatedJobs"][0]
    assert job["template"]["spec"]["template"]["spec"]["volumes"] == [{"name": "scratch", "emptyDir": {}}]


async def test_c2_a_try_whose_answer_was_lost_is_repeated_without_harm() -> None:
    world = world_with()

    def lose(written: JsonObject) -> None:
        world.on_write = lambda obj: None
        raise TransportError("connection reset")

    world.on_write, world.lagging = lose, True
    with pytest.raises(TransportError):
        await world.reconcile()
    world.lagging = False
    await world.reconcile()
    assert world.requests == ["apply ConfigMap", "get TrainJob", "apply ConfigMap", "apply JobSet"]
    names = [obj["metadata"]["name"] for obj in world.applied]
    assert names == ["demo-runtime-snapshot", "demo-runtime-snapshot", "demo"]
    assert world.applied[0] == world.applied[1]


async def test_c1_what_vanished_with_its_trainjob_is_not_made_again() -> None:
    """The cache of TrainJobs is behind that of JobSets, in which garbage collection shows already."""
    world = world_with(suspend=True)
    await world.reconcile()
    del world.server["TrainJob", KEY]
    world.remove("JobSet")
    applied = len(world.applied)
    with pytest.raises(Conflict, match="the TrainJob is gone"):
        await world.reconcile()
    assert len(world.applied) == applied


@pytest.mark.parametrize("error", [Conflict(status=409), AlreadyExists(status=409), TooManyRequests(status=429)])
async def test_c2_c9_after_a_conflict_the_work_is_dropped_and_nobody_is_alarmed(error: Exception) -> None:
    """Retried as it was computed it would be built on what is no longer so."""
    world = world_with()
    world.on_write = lambda obj: (_ for _ in ()).throw(error)
    with pytest.raises(type(error)):
        await world.reconcile()
    assert world.requests == ["apply ConfigMap"]
    assert world.events == []


async def test_c10_an_update_is_about_the_object_that_was_seen() -> None:
    """Deleted and made again by somebody else meanwhile, it is another object, and not ours."""
    world = world_with(jobset_of("uid-1") | {"spec": {"suspend": True}}, suspend=True)
    await world.reconcile()
    snapshot, jobset = world.applied
    assert "uid" not in snapshot["metadata"]
    assert jobset["metadata"]["uid"] == "JobSet-of-uid-1"
    world.change("JobSet", spec={"suspend": True})
    world.server["JobSet", KEY]["metadata"]["uid"] = "another"
    with pytest.raises(Conflict, match="uid"):
        await world.reconcile()


async def test_c3_c10_the_workload_of_an_expired_job_is_deleted_once() -> None:
    world = world_with(jobset_of("uid-1"), activeDeadlineSeconds=60)
    world.clock.step(60)
    jobset = world.find("JobSet")
    world.lagging = True
    await world.reconcile()
    assert world.deleted == [("demo", "JobSet-of-uid-1")]
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"
    world.show(world.find("TrainJob"))
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.stores[jobset["apiVersion"], "JobSet"].delete(KEY)
    assert await world.reconcile() == DONE
    assert len(world.deleted) == 1


@pytest.mark.parametrize("after", ["nothing", "another"])
async def test_c3_c10_what_was_deleted_by_somebody_else_is_no_error(after: str) -> None:
    """The cache still shows it; the UID keeps us from deleting what took its name."""
    world = world_with(jobset_of("uid-1"), activeDeadlineSeconds=60)
    world.clock.step(60)
    if after == "nothing":
        del world.server["JobSet", KEY]
    else:
        world.server["JobSet", KEY]["metadata"]["uid"] = "another"
    await world.reconcile()
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"
    assert ("JobSet", KEY) in world.server or after == "nothing"
    assert isinstance(await world.reconcile(), ExpectationsPending)


async def test_f3_no_object_ever_gets_a_finalizer() -> None:
    world = world_with(suspend=True, activeDeadlineSeconds=60)
    await world.reconcile()
    world.clock.step(100)
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    await world.reconcile()
    await world.reconcile()
    assert "finalizers" not in repr([world.applied, world.patches])
