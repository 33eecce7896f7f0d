"""Own writes, stale caches, conflicts: what the reconciler of TrainJobs does when the world is not as it looks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import KEY, World, refused

from trainmaster.controller.kube.rest.errors import AlreadyExists, Conflict, TooManyRequests, TransportError
from trainmaster.controller.reconciling.outcomes import DONE, NotYet, RequeueAfter, TerminalError
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject


def world_with(*objects: JsonObject, **spec: Any) -> World:
    world = World()
    world.put(trainjob_object(**spec), runtime_object(), *objects)
    return world


def child(kind: str, api_version: str, name: str, *, owner: str) -> JsonObject:
    """An object of the TrainJob `demo` with the UID `owner`."""
    reference = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "demo", "uid": owner}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"{kind}-of-{owner}",
            "resourceVersion": "90",
            "ownerReferences": [{**reference, "controller": True}],
        },
    }


def jobset_of(owner: str) -> JsonObject:
    return child("JobSet", "jobset.x-k8s.io/v1alpha2", "demo", owner=owner)


async def test_c12_a7_a_settled_job_costs_no_request() -> None:
    world = world_with(suspend=True)
    assert await world.reconcile() == DONE
    assert world.requests == ["apply ConfigMap", "apply JobSet", "patch status"]
    for _ in range(3):
        assert await world.reconcile() == DONE
    assert len(world.requests) == 3


async def test_c12_a_restart_costs_no_request_either() -> None:
    """Nothing that was remembered is needed."""
    world = world_with(suspend=True)
    await world.reconcile()
    fresh = World()
    fresh.put(*world.server.values())
    assert await fresh.reconcile() == DONE
    assert fresh.requests == []


async def test_c1_c4_no_key_is_reconciled_before_the_cache_shows_its_own_writes() -> None:
    world = world_with()
    world.lagging = True
    await world.reconcile()
    assert world.requests == ["apply ConfigMap", "apply JobSet"]
    for _ in range(5):
        assert isinstance(await world.reconcile(), NotYet)
    world.show(world.find("ConfigMap", "demo-runtime-snapshot"))
    assert isinstance(await world.reconcile(), NotYet)
    world.show(world.find("JobSet"))
    assert await world.reconcile() == DONE
    assert len(world.requests) == 2


async def test_c4_e5_the_successor_of_a_name_sees_what_its_predecessor_left() -> None:
    """Otherwise it would apply its own JobSet over the one of the job before it, and take over its pods."""
    world = world_with()
    world.lagging = True
    await world.reconcile()
    world.remove("TrainJob")
    assert isinstance(await world.reconcile(), NotYet)
    world.put(trainjob_object(uid="uid-2"))
    assert isinstance(await world.reconcile(), NotYet)
    world.show(world.find("ConfigMap", "demo-runtime-snapshot"))
    world.show(world.find("JobSet"))
    assert isinstance(await world.reconcile(), RequeueAfter)  # garbage collection will come
    assert world.requests == ["apply ConfigMap", "apply JobSet"]


async def test_c5_an_own_status_write_does_not_hold_up_the_successor() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    world.lagging = True
    world.change("TrainJob", status={})
    world.show(world.find("TrainJob"))
    await world.reconcile()
    assert isinstance(await world.reconcile(), NotYet)
    world.put(trainjob_object(uid="uid-2", suspend=True))
    assert not isinstance(await world.reconcile(), NotYet)


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


async def test_c9_c10_a_status_that_was_read_too_early_is_not_written() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    stale = world.find("TrainJob")
    world.change("TrainJob", spec={"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, "suspend": False})
    world.show(stale | {"spec": stale["spec"] | {"suspend": False}})
    with pytest.raises(Conflict, match="resourceVersion"):
        await world.reconcile()
    assert world.conditions["Suspended"]["status"] == "True"


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
    assert isinstance(await world.reconcile(), NotYet)
    world.stores[jobset["apiVersion"], "JobSet"].remove(KEY)
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
    assert isinstance(await world.reconcile(), NotYet)


@pytest.mark.parametrize("owner", ["uid-0", "stranger"])
async def test_e5_an_object_of_somebody_else_is_neither_read_nor_written(owner: str) -> None:
    other = jobset_of(owner)
    if owner == "stranger":
        other["metadata"]["ownerReferences"] = []
    other["status"] = {"conditions": [{"type": "Completed", "status": "True"}]}
    world = world_with(other)
    await world.reconcile()
    assert world.requests.count("apply JobSet") == 0
    assert "Complete" not in world.conditions


async def test_c11_the_status_is_all_that_a_status_patch_changes() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    (patch,) = world.patches
    assert patch.keys() == {"metadata", "status"}


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


async def test_f3_no_object_ever_gets_a_finalizer() -> None:
    world = world_with(suspend=True, activeDeadlineSeconds=60)
    await world.reconcile()
    world.clock.step(100)
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    await world.reconcile()
    await world.reconcile()
    assert "finalizers" not in repr([world.applied, world.patches])


async def test_k3_an_unreadable_trainjob_is_given_up_until_it_changes() -> None:
    world = world_with(suspend="yes")
    outcome = await world.reconcile()
    assert isinstance(outcome, TerminalError)
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"
    assert isinstance(await world.reconcile(), TerminalError)
    assert world.requests == ["patch status"]
    assert len(world.events) == 1


async def test_each_object_is_decoded_once_in_a_reconcile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan, status and plugins look at the same JobSet, and at the same moment of it."""
    world = world_with(suspend=True)
    await world.reconcile()
    reads: list[str] = []
    for (_, kind), store in world.stores.items():
        original = store.get

        def get(key: str, kind: str = kind, original: Any = original) -> JsonObject | None:
            found: JsonObject | None = original(key)
            if found is not None:
                reads.append(kind)
            return found

        monkeypatch.setattr(store, "get", get)
    await world.reconcile()
    assert sorted(reads) == ["ConfigMap", "JobSet", "TrainJob"]


async def test_f8_an_event_is_never_needed() -> None:
    """A recorder that loses everything changes nothing."""
    world = World()
    world.put(trainjob_object())
    world.event = lambda *args, **kwargs: None  # type: ignore[method-assign] # what this test is about
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeNotFound"
    world.put(runtime_object())
    world.refusal = refused("no")
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "ApplyFailed"
    assert Framework(load_plugins()).order()["build"]
