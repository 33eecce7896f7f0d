"""What the writes of a plan look like, and what follows when they fail or meet something else."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import KEY, World, jobset_of, world_with

from trainmaster.controller.kube.rest.client import ABSENT
from trainmaster.controller.kube.rest.errors import (
    AlreadyExists,
    Conflict,
    MalformedResponse,
    TooManyRequests,
    TransportError,
)
from trainmaster.controller.reconciling.outcomes import DONE, ExpectationsPending, Requeue, RequeueAfter
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.jsontree import JsonObject


def intent(applied: JsonObject) -> JsonObject:
    """What was applied, without what it was to be applied to."""
    metadata = {name: value for name, value in applied["metadata"].items() if name not in {"uid", "resourceVersion"}}
    return {**applied, "metadata": metadata}


@pytest.mark.guarantee("A-2")
async def test_every_apply_carries_all_that_we_want() -> None:
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
    assert intent(again) == intent(first)


def with_defaults_in_items(world: World) -> None:
    """Have a server that sets defaults in the items of an atomic list, as kube-apiserver does of its own kinds."""

    def default(written: JsonObject) -> None:
        if written["kind"] == "JobSet":
            for rule in written["spec"]["failurePolicy"]["rules"]:
                rule.setdefault("targetReplicatedJobs", [])
            world.store(written)

    world.on_write = default


@pytest.mark.guarantee("A-6")
async def test_a_default_in_an_item_of_an_atomic_list_is_no_reason_to_write_again() -> None:
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


@pytest.mark.guarantee("A-4")
async def test_no_null_is_applied_and_an_empty_map_stays_what_its_author_meant() -> None:
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


@pytest.mark.guarantee("C-2")
@pytest.mark.parametrize(
    "ending",
    [TransportError("connection reset"), MalformedResponse("cut off"), asyncio.CancelledError()],
    ids=lambda ending: type(ending).__name__,
)
async def test_a_try_whose_answer_was_lost_is_repeated_without_harm(ending: BaseException) -> None:
    world = world_with()

    def lose(written: JsonObject) -> None:
        world.on_write = lambda obj: None
        raise ending

    world.on_write, world.lagging = lose, True
    with pytest.raises(type(ending)):
        await world.reconcile()
    world.lagging = False
    with pytest.raises(Conflict):
        await world.reconcile()
    assert world.requests == ["apply ConfigMap", "get TrainJob", "apply ConfigMap", "get ConfigMap"]
    assert world.applied[0] == world.applied[1]
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.show(world.find("ConfigMap", "demo-runtime-snapshot"))
    await world.reconcile()
    assert world.requests[4:] == ["get TrainJob", "apply JobSet"]


@pytest.mark.guarantee("C-1")
async def test_what_vanished_with_its_trainjob_is_not_made_again() -> None:
    """The cache of TrainJobs is behind that of JobSets, in which garbage collection shows already."""
    world = world_with(suspend=True)
    await world.reconcile()
    del world.server["TrainJob", KEY]
    world.remove("JobSet")
    applied = len(world.applied)
    with pytest.raises(Conflict, match="the TrainJob is gone"):
        await world.reconcile()
    assert len(world.applied) == applied


@pytest.mark.guarantee("C-2", "C-9")
@pytest.mark.parametrize("error", [Conflict(status=409), AlreadyExists(status=409), TooManyRequests(status=429)])
async def test_after_a_conflict_the_work_is_dropped_and_nobody_is_alarmed(error: Exception) -> None:
    """Retried as it was computed it would be built on what is no longer so."""
    world = world_with()
    world.on_write = lambda obj: (_ for _ in ()).throw(error)
    with pytest.raises(type(error)):
        await world.reconcile()
    assert [request for request in world.requests if not request.startswith("get ")] == ["apply ConfigMap"]
    assert world.events == []


class Maker:
    """Somebody's plugin, which builds a ConfigMap."""

    name = "Maker"

    def build(self, info: Any, job: Any, listers: Any) -> list[Desired]:
        metadata = {"name": "made", "namespace": "team"}
        return [Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}})]


async def left_by_predecessor(kind: str, name: str) -> JsonObject:
    """What the TrainJob `uid-1` had built."""
    world = World(Maker())
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    left = world.find(kind, name)
    left["metadata"]["resourceVersion"] = "900"
    return left


@pytest.mark.guarantee("C-2", "E-5")
@pytest.mark.parametrize(
    ("kind", "name"), [("ConfigMap", "demo-runtime-snapshot"), ("JobSet", "demo"), ("ConfigMap", "made")]
)
async def test_what_an_earlier_trainjob_left_is_not_taken_over_unseen(kind: str, name: str) -> None:
    """The cache of its kind is behind that of TrainJobs, as in a replica that has just come to lead."""
    left = await left_by_predecessor(kind, name)
    world = World(Maker())
    world.put(trainjob_object(uid="uid-2"), runtime_object())
    world.server[kind, f"team/{name}"] = left
    with pytest.raises(Conflict):
        await world.reconcile()
    assert world.find(kind, name) == left
    # Until the cache shows what there is, nobody asks again.
    asked = len(world.requests)
    assert isinstance(await world.reconcile(), ExpectationsPending)
    assert len(world.requests) == asked
    world.show(left)
    assert isinstance(await world.reconcile(), RequeueAfter)
    assert world.find(kind, name) == left
    world.remove(kind, name)
    await world.reconcile()
    made = world.find(kind, name)
    assert made["metadata"]["uid"] != left["metadata"]["uid"]
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == ["uid-2"]


@pytest.mark.guarantee("C-2", "E-5")
async def test_what_somebody_else_has_and_no_cache_shows_is_left_alone() -> None:
    """A watch of labels that it does not have never shows it."""
    foreign = {**await left_by_predecessor("ConfigMap", "made"), "data": {"key": "theirs"}}
    del foreign["metadata"]["ownerReferences"]
    world = World(Maker())
    world.put(trainjob_object(uid="uid-2"), runtime_object())
    world.server["ConfigMap", "team/made"] = foreign
    assert isinstance(await world.reconcile(), Requeue)
    assert world.conditions["Blocked"]["reason"] == "NameTaken"
    assert 'ConfigMap "made" exists' in world.conditions["Blocked"]["message"]
    assert world.find("ConfigMap", "made") == foreign


@pytest.mark.guarantee("C-2")
async def test_an_object_that_its_own_watch_does_not_select_is_brought_up_to_date() -> None:
    """A plugin may watch by labels that it does not give to what it builds."""
    own = {**await left_by_predecessor("ConfigMap", "made"), "data": {"key": "old"}}
    world = World(Maker())
    world.put(trainjob_object(), runtime_object())
    world.server["ConfigMap", "team/made"] = own
    world.stores["v1", "ConfigMap"].update_resource_version("900")
    await world.reconcile()
    made = world.find("ConfigMap", "made")
    assert (made["data"], made["metadata"]["uid"]) == ({"key": "value"}, own["metadata"]["uid"])
    assert "apply JobSet" in world.requests


@pytest.mark.guarantee("C-1")
async def test_a_trainjob_that_a_leader_saw_come_is_not_read_again() -> None:
    world = World()
    world.put(runtime_object())
    world.reconciler.on_start()
    world.put(trainjob_object())
    await world.reconcile()
    assert world.requests == ["apply ConfigMap", "apply JobSet"]


@pytest.mark.guarantee("C-10")
async def test_an_update_is_about_the_object_that_was_seen() -> None:
    """Deleted and made again by somebody else meanwhile, it is another object, and not ours."""
    world = world_with(jobset_of("uid-1") | {"spec": {"suspend": True}}, suspend=True)
    await world.reconcile()
    snapshot, jobset = world.applied
    assert "uid" not in snapshot["metadata"]
    assert snapshot["metadata"]["resourceVersion"] == ABSENT
    assert "resourceVersion" not in jobset["metadata"]
    assert jobset["metadata"]["uid"] == "JobSet-of-uid-1"
    world.change("JobSet", spec={"suspend": True})
    world.server["JobSet", KEY]["metadata"]["uid"] = "another"
    with pytest.raises(Conflict, match="uid"):
        await world.reconcile()


@pytest.mark.guarantee("C-3", "C-10")
async def test_the_workload_of_an_expired_job_is_deleted_once() -> None:
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


@pytest.mark.guarantee("C-3")
async def test_what_was_deleted_by_somebody_else_is_no_error() -> None:
    """The cache still shows it."""
    world = world_with(jobset_of("uid-1"), activeDeadlineSeconds=60)
    world.clock.step(60)
    del world.server["JobSet", KEY]
    await world.reconcile()
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"
    assert isinstance(await world.reconcile(), ExpectationsPending)


@pytest.mark.guarantee("C-9", "C-10")
async def test_what_took_the_name_of_something_that_is_to_be_deleted_stays() -> None:
    """The UID keeps us from deleting it; the deadline is written once the cache shows which one it is."""
    world = world_with(jobset_of("uid-1"), activeDeadlineSeconds=60)
    world.clock.step(60)
    world.server["JobSet", KEY]["metadata"] |= {"uid": "another", "ownerReferences": []}
    with pytest.raises(Conflict):
        await world.reconcile()
    world.show(world.server["JobSet", KEY])
    assert await world.reconcile() == DONE
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"
    assert ("JobSet", KEY) in world.server


@pytest.mark.guarantee("F-3")
async def test_no_object_ever_gets_a_finalizer() -> None:
    world = world_with(suspend=True, activeDeadlineSeconds=60)
    await world.reconcile()
    world.clock.step(100)
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    await world.reconcile()
    await world.reconcile()
    assert "finalizers" not in repr([world.applied, world.patches])
