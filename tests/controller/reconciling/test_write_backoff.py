"""How often we write: what somebody keeps undoing, and a status."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs
from support.commands import TIMEOUT
from support.objects import runtime_object, trainjob_object
from support.virtualtime import VirtualClock
from support.world import KEY, World, world_with

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Conflict
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.outcomes import DONE, Requeue, RequeueAfter
from trainmaster.controller.reconciling.status_writer import COUNTERS_INTERVAL
from trainmaster.controller.reconciling.write_backoff import (
    FREE_CHANGES,
    FREE_WRITES,
    LONGEST_WAIT,
    QUIET,
    FieldConflict,
    WriteBackoff,
    find_field_conflict,
)
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.jsontree import JsonObject

JOBSET = 'JobSet "demo"'


@asynccontextmanager
async def controlled(world: World, rival: Callable[[JsonObject], None]) -> AsyncIterator[None]:
    """Run the controller; every write, and what the rival makes of it, wakes the key up at once."""
    queue = WorkQueue(clock=world.clock)

    def react(written: JsonObject) -> None:
        rival(written)
        queue.add(KEY)

    world.on_write = react
    controller = Controller("contended", world.reconciler.reconcile, queue, workers=2, clock=world.clock)
    running = asyncio.create_task(controller.run())
    queue.add(KEY)
    yield
    queue.shut_down()
    await asyncio.wait_for(running, TIMEOUT)


class Suspender:
    """Another controller, which suspends every JobSet that it sees running."""

    def __init__(self, world: World) -> None:
        self.active = True
        self._world = world

    def __call__(self, written: JsonObject) -> None:
        if self.active and written["kind"] == "JobSet" and not written["spec"].get("suspend"):
            (ours,) = (entry for entry in written["metadata"]["managedFields"] if entry["manager"] == "trainer")
            del ours["fieldsV1"]["f:spec"]["f:suspend"]
            fields: JsonObject = {"f:spec": {"f:suspend": {}}}
            theirs = {"manager": "acme-quota", "operation": "Update", "fieldsV1": fields}
            written["metadata"]["managedFields"] = [theirs, ours]
            self._world.store({**written, "spec": {**written["spec"], "suspend": True}})


async def test_a_fight_over_an_object_is_no_hot_loop() -> None:
    """Both answer at once, so without the guard no virtual time would ever pass."""
    world = world_with()
    with capture_logs() as logs:
        async with controlled(world, Suspender(world)):
            await world.clock.advance(10)
            assert FREE_WRITES < world.requests.count("apply JobSet") <= FREE_WRITES + 4
            await world.clock.advance(3590)
    # 1, 2, 4, ... 256 s, and then every five minutes.
    assert world.requests.count("apply JobSet") <= FREE_WRITES + 10 + 3600 / LONGEST_WAIT
    assert world.requests.count("get JobSet") == 1
    assert len(world.requests) < 40
    (line,) = [entry for entry in logs if entry["event"].startswith("our writes are undone")]
    assert (line["log_level"], line["object"]) == ("warning", JOBSET)
    assert (line["fields"], line["managers"]) == (["spec.suspend"], ["acme-quota"])
    (note,) = world.events
    assert JOBSET in note
    assert "spec.suspend (set by acme-quota)" in note


class Restless:
    """A plugin that never wants the same twice."""

    name = "Restless"

    def __init__(self) -> None:
        self._wishes = itertools.count()

    def build(self, info: Any, job: Any, listers: Any) -> list[Desired]:
        metadata = {"name": "restless", "namespace": "team"}
        data = {"wish": str(next(self._wishes))}
        return [Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})]


async def test_a_plugin_that_keeps_changing_its_mind_makes_no_hot_loop() -> None:
    """Each of our writes wakes us up, and each time something else is to be written."""
    world = World(Restless())
    world.put(trainjob_object(), runtime_object())
    async with controlled(world, lambda written: None):
        for _ in range(200):
            await world.clock.advance(1)
        assert 100 <= world.requests.count("apply ConfigMap") <= 100 + FREE_CHANGES + 2
        assert world.events == []


async def test_a_fight_ends_by_itself_when_the_other_stops() -> None:
    world = world_with()
    rival = Suspender(world)
    async with controlled(world, rival):
        await world.clock.advance(600)
        rival.active = False
        await world.clock.advance(LONGEST_WAIT)
        assert world.find("JobSet")["spec"].get("suspend") is not True
        settled = len(world.requests)
        await world.clock.advance(2 * LONGEST_WAIT + 1)
        assert len(world.requests) == settled
        # Much later it is as if there had been nothing: what somebody undoes is put right at once.
        world.change("JobSet", spec={**world.find("JobSet")["spec"], "suspend": True})
        await world.reconcile()
        assert world.find("JobSet")["spec"].get("suspend") is not True


async def test_a_webhook_that_changes_what_we_send_is_named_as_such() -> None:
    world = world_with()

    def webhook(written: JsonObject) -> None:
        if written["kind"] == "JobSet":
            written["spec"]["suspend"] = True
            world.store(written)

    async with controlled(world, webhook):
        await world.clock.advance(3600)
    assert len(world.requests) < 40
    (note,) = world.events
    assert "spec.suspend (changed by an admission webhook, or by another controller that calls itself trainer)" in note


async def test_an_object_that_is_deleted_again_and_again_is_not_made_in_a_hot_loop() -> None:
    world = world_with()

    def reaper(written: JsonObject) -> None:
        if written["kind"] == "JobSet":
            world.remove("JobSet")

    async with controlled(world, reaper):
        await world.clock.advance(3600)
    assert world.requests.count("apply JobSet") < 30
    assert "the whole object, which is deleted" in world.events[0]


async def test_a_fight_over_the_status_is_no_hot_loop() -> None:
    world = world_with(suspend=True)

    def cleaner(written: JsonObject) -> None:
        if written["kind"] == "TrainJob" and written.get("status"):
            world.store({**written, "status": {}})

    async with controlled(world, cleaner):
        await world.clock.advance(3600)
    assert world.requests.count("patch status") < 30
    (note,) = world.events
    assert "the status does not stay" in note


async def test_the_successors_of_a_name_do_not_wait_for_each_other() -> None:
    """Run, deleted and run again, from one file: what is written twenty times is twenty jobs and no fight."""
    world = World()
    world.put(runtime_object())
    for number in range(20):
        world.put(trainjob_object(uid=f"run-{number}", suspend=True))
        await world.reconcile()
        await world.reconcile()
        assert world.find("JobSet")["metadata"]["ownerReferences"][0]["uid"] == f"run-{number}"
        assert world.conditions["Suspended"]["status"] == "True"
        for kind in ("TrainJob", "JobSet", "ConfigMap"):
            world.remove(kind, "demo-runtime-snapshot" if kind == "ConfigMap" else "demo")
        await world.reconcile()
    assert world.requests.count("apply JobSet") == 20
    assert world.events == []


async def test_others_do_not_wait_for_a_contested_object_that_is_there() -> None:
    """The status is still written, and a deadline still counts."""
    world = world_with(activeDeadlineSeconds=60)
    async with controlled(world, Suspender(world)):
        await world.clock.advance(61)
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"
    assert world.deleted == [("demo", world.applied[-1]["metadata"].get("uid"))]


def test_what_is_over_is_forgotten(clock: VirtualClock) -> None:
    write_backoff = WriteBackoff(clock)
    for number in range(1000):
        write_backoff.record_write(f"team/{number}", JOBSET, {})
        clock.step(1)
    assert len(write_backoff) <= QUIET + 1


async def test_a_conflict_names_fields_and_who_set_them() -> None:
    ours: JsonObject = {
        "f:metadata": {"f:labels": {"f:gone": {}}},
        "f:spec": {
            "f:jobs": {'k:{"name":"n"}': {".": {}, "f:name": {}}},
            "f:ports": {'k:{"containerPort":1,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
        },
    }
    live = {
        "metadata": {
            "labels": {"a": "theirs"},
            "managedFields": [
                {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}},
                {"manager": "scaler", "fieldsV1": {"f:spec": {"f:jobs": {'k:{"name":"n"}': {"f:replicas": {}}}}}},
                {
                    "manager": "porter",
                    "fieldsV1": {"f:spec": {"f:ports": {'k:{"containerPort":1,"protocol":"TCP"}': {"f:hostPort": {}}}}},
                },
                {"manager": "bystander", "fieldsV1": {"f:spec": {"f:other": {}}}},
                {"manager": "trainer", "operation": "Apply", "fieldsV1": ours},
            ],
        },
        "spec": {
            "jobs": [{"name": "n", "replicas": 2}],
            "ports": [{"containerPort": 1, "protocol": "TCP", "hostPort": 2}],
            "args": ["x"],
        },
    }
    desired = {
        "metadata": {"namespace": "team", "name": "demo", "labels": {"a": "ours"}},
        "spec": {
            "jobs": [{"name": "n", "replicas": 1}, {"name": "m"}],
            "ports": [{"containerPort": 1, "hostPort": 1}],
            "args": ["y"],
        },
    }
    client = AsyncMock(KubeClient)
    client.get.return_value = live
    found = await find_field_conflict(client, JOBSETS, desired)
    assert found.fields == [
        "spec.jobs[name=n].replicas",
        "spec.jobs[name=m]",
        "spec.ports[containerPort=1][protocol=TCP].hostPort",
        "spec.args",
        "metadata.labels.gone",
        "metadata.labels.a",
    ]
    assert found.managers == ["scaler", "porter", "trainer", "kubectl"]
    assert str(found).endswith("metadata.labels.gone, ... (set by scaler, porter, kubectl)")
    assert str(FieldConflict([], [])) == "nothing at this moment"


def counters(**counts: int) -> list[JsonObject]:
    return [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **counts}]


def report(world: World, *conditions: JsonObject, **counts: int) -> None:
    world.change("JobSet", status={"replicatedJobsStatus": counters(**counts), "conditions": list(conditions)})


def shown(world: World) -> Any:
    return (world.find("TrainJob").get("status") or {}).get("jobsStatus")


@pytest.fixture
async def world() -> World:
    """A world in which the job has been built."""
    world = world_with()
    await world.reconcile()
    assert world.requests == ["apply ConfigMap", "apply JobSet"]
    return world


async def test_counters_are_written_once_a_second_at_most_and_the_last_ones_surely(world: World) -> None:
    """Twenty changes within a second are one write, of the last of them, when a second has passed."""
    for active in range(20):
        report(world, active=active, ready=active)
        outcome = await world.reconcile()
        assert isinstance(outcome, RequeueAfter)
        assert outcome.seconds == pytest.approx(COUNTERS_INTERVAL - active / 20)
        world.clock.step(0.05)
    assert world.patches == []
    assert await world.reconcile() == DONE
    assert len(world.patches) == 1
    assert shown(world) == counters(active=19, ready=19)
    report(world, active=20, ready=20)
    assert isinstance(await world.reconcile(), RequeueAfter)
    assert await world.reconcile_after(COUNTERS_INTERVAL) == DONE
    assert len(world.patches) == 2


async def test_counters_that_go_back_to_what_is_written_are_not_written(world: World) -> None:
    report(world, active=1)
    await world.reconcile()
    world.change("JobSet", status={})
    assert await world.reconcile() == DONE
    assert await world.reconcile_after(10) == DONE
    assert world.patches == []
    report(world, active=1)
    outcome = await world.reconcile()
    assert isinstance(outcome, RequeueAfter)
    assert outcome.seconds == COUNTERS_INTERVAL


async def test_a_blocked_job_gets_its_counters_in_time_as_well() -> None:
    """Whatever the backoff of what blocks it."""

    class Moody:
        name = "Moody"
        mood = True

        def enforce_pod_spec(self, info: Any, job: Any) -> None:
            if not self.mood:
                raise KeyError("mood")

    moody = Moody()
    world = World(moody)
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    moody.mood = False
    assert isinstance(await world.reconcile(), Requeue)
    report(world, active=1)
    outcome = await world.reconcile()
    assert isinstance(outcome, Requeue)
    assert outcome.at_latest == COUNTERS_INTERVAL


async def test_a_job_that_is_gone_leaves_nothing_behind(world: World) -> None:
    report(world, active=1)
    await world.reconcile()
    world.remove("TrainJob")
    assert await world.reconcile() == DONE
    assert not world.reconciler._status_writer._due
    assert not world.reconciler._status_writer._reports
    assert len(world.reconciler._expectations) == 0


@pytest.mark.guarantee("C-11")
async def test_the_status_is_all_that_a_status_patch_changes() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    (patch,) = world.patches
    assert patch.keys() == {"metadata", "status"}


@pytest.mark.guarantee("C-9", "C-10")
async def test_a_status_that_was_read_too_early_is_not_written() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    stale = world.find("TrainJob")
    world.change("TrainJob", spec={"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, "suspend": False})
    world.show(stale | {"spec": stale["spec"] | {"suspend": False}})
    with pytest.raises(Conflict, match="resourceVersion"):
        await world.reconcile()
    assert world.conditions["Suspended"]["status"] == "True"
