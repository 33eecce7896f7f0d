"""Snapshots of runtimes: which of them a TrainJob is built from."""

from __future__ import annotations

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.world import World

from trainmaster.controller.kube.rest.errors import TransportError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api import parse_trainjob
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime, snapshot_digest

SNAPSHOT = "demo-runtime-snapshot"


def runtime(image: str) -> JsonObject:
    return runtime_object(replicated_job(containers=[{"name": "node", "image": image}]))


def snapshot(image: str) -> JsonObject:
    return build_snapshot(parse_trainjob(trainjob_object()), encode_runtime(runtime(image)))


def image_of(world: World) -> str:
    pods = world.find("JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return str(pods["spec"]["containers"][0]["image"])


def replace(world: World, image: str) -> None:
    world.remove("ConfigMap", SNAPSHOT)
    world.put(snapshot(image))


async def suspended_world() -> World:
    """A TrainJob that is suspended, with the snapshot of a vetted runtime."""
    world = World()
    world.put(trainjob_object(suspend=True), runtime("vetted"))
    await world.reconcile()
    return world


def bound_to(world: World) -> str:
    return str(world.find("TrainJob")["status"].get("runtimeSnapshotDigest", ""))


def is_refused(world: World) -> bool:
    return world.conditions.get("Blocked", {}).get("reason") == "RuntimeSnapshotInvalid"


async def test_a_snapshot_is_immutable_and_its_digest_is_in_the_status() -> None:
    world = await suspended_world()
    written = world.find("ConfigMap", SNAPSHOT)
    assert written["immutable"] is True
    assert bound_to(world) == snapshot_digest(written["data"]["runtime"])


async def test_a_snapshot_counts_although_what_follows_has_no_answer_and_the_runtime_changes() -> None:
    world = World()
    world.put(trainjob_object(), runtime_object())
    apply = world.apply

    async def lose(resource: Resource, obj: JsonObject, *, field_manager: str) -> JsonObject:
        if resource.kind == "JobSet":
            raise TransportError("no answer")
        return await apply(resource, obj, field_manager=field_manager)

    world.apply = lose  # type: ignore[method-assign]
    with pytest.raises(TransportError):
        await world.reconcile()
    world.apply = apply  # type: ignore[method-assign]
    world.put(runtime_object(replicated_job(containers=[{"name": "node", "image": "another"}])))
    await world.reconcile()
    await world.reconcile()
    assert world.conditions == {}
    assert "another" not in str(world.find("JobSet"))


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_replaced_snapshot_is_never_built(restarted: bool) -> None:
    world = await suspended_world()
    replace(world, "evil")
    if restarted:
        world.restart()
    await world.reconcile()
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    await world.reconcile()
    assert is_refused(world)
    assert image_of(world) == "vetted"
    assert "kubectl delete configmap" in world.conditions["Blocked"]["message"]


async def test_a_snapshot_that_was_refused_is_frozen_anew_when_it_is_deleted() -> None:
    """With the runtime of today, also if the manager is killed before the status is written."""
    world = await suspended_world()
    replace(world, "evil")
    await world.reconcile()
    world.put(runtime("newer"))
    world.remove("ConfigMap", SNAPSHOT)
    world.put(snapshot("newer"))
    world.restart()
    await world.reconcile()
    assert not is_refused(world)
    assert image_of(world) == "newer"
    assert bound_to(world) == snapshot_digest(snapshot("newer")["data"]["runtime"])


async def test_a_snapshot_is_bound_before_the_status_is_first_written() -> None:
    """A TrainJob that runs has no status before its JobSet has one."""
    world = World()
    world.put(trainjob_object(), runtime("vetted"))
    await world.reconcile()
    assert "patch status" not in world.requests
    replace(world, "evil")
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": True})
    await world.reconcile()
    assert is_refused(world)
    assert bound_to(world) == snapshot_digest(snapshot("vetted")["data"]["runtime"])


@pytest.mark.parametrize("runtimes", [[runtime("vetted")], []])
async def test_a_snapshot_that_was_there_before_the_manager_must_hold_the_runtime(runtimes: list[JsonObject]) -> None:
    world = World()
    world.put(trainjob_object(), *runtimes, snapshot("evil"))
    await world.reconcile()
    assert is_refused(world)
    assert "apply JobSet" not in world.requests


async def test_a_snapshot_that_was_somebody_elses_must_hold_the_runtime_when_it_is_the_trainjobs() -> None:
    """The status that tells of the first one has no digest, and makes the TrainJob no older than digests."""
    world = World()
    claimed = snapshot("evil")
    foreign = {**claimed, "metadata": {**claimed["metadata"], "ownerReferences": []}}
    world.put(trainjob_object(), runtime("vetted"), foreign)
    await world.reconcile()
    assert is_refused(world)
    world.remove("ConfigMap", SNAPSHOT)
    world.put(claimed)
    await world.reconcile()
    assert is_refused(world)
    assert "apply JobSet" not in world.requests


async def test_a_snapshot_without_a_digest_is_taken_once_and_then_bound() -> None:
    """The Go original wrote it, or a version before there were digests; the runtime has changed since."""
    world = World()
    status = {"jobsStatus": [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 1}]}
    world.put(trainjob_object(suspend=True, status=status), runtime("newer"), snapshot("frozen"))
    await world.reconcile()
    assert image_of(world) == "frozen"
    assert bound_to(world) == snapshot_digest(snapshot("frozen")["data"]["runtime"])
    replace(world, "evil")
    await world.reconcile()
    assert is_refused(world)


async def test_the_digest_goes_when_the_job_has_ended() -> None:
    """Nothing is built any more, whichever process saw the end."""
    world = await suspended_world()
    jobset = world.find("JobSet")
    ended = [{"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}]
    world.change("JobSet", status={**jobset.get("status", {}), "conditions": ended})
    await world.reconcile()
    assert world.conditions["Complete"]["status"] == "True"
    assert bound_to(world) == ""


async def test_a_definition_without_the_field_costs_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server drops what the original's definition does not have."""
    world = World()
    store = world.store

    def pruning(obj: JsonObject) -> JsonObject:
        (obj.get("status") or {}).pop("runtimeSnapshotDigest", None)
        return store(obj)

    monkeypatch.setattr(world, "store", pruning)
    world.put(trainjob_object(suspend=True), runtime("vetted"))
    await world.reconcile()
    world.requests.clear()
    for _ in range(3):
        await world.reconcile()
    assert world.requests == []
    replace(world, "evil")
    await world.reconcile()
    assert is_refused(world)
