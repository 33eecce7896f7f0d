"""The reconciler of TrainJobs: what it makes of what the caches show, do not show yet, or cannot read."""

import asyncio
import threading
from typing import Any

import orjson
import pytest
from support.objects import runtime_object, trainjob_object
from support.world import World, jobset_of, refused, world_with

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.reconciling.drift import Drift, drift, owned_fields_of
from trainmaster.controller.reconciling.outcomes import (
    DONE,
    LONGEST_REQUEUE,
    ExpectationsPending,
    Requeue,
    RequeueAfter,
    TerminalError,
)
from trainmaster.controller.reconciling.trainjobs import decider
from trainmaster.controller.reconciling.trainjobs.decider import LARGE
from trainmaster.controller.reconciling.trainjobs.observe import DeletedWorkloads
from trainmaster.controller.reconciling.write_backoff import managers_of
from trainmaster.runtime.api.decoding import parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime


@pytest.mark.guarantee("C-12", "A-7")
async def test_a_settled_job_costs_no_request_also_after_a_restart() -> None:
    world = world_with(suspend=True)
    assert await world.reconcile() == DONE
    assert world.requests == ["apply ConfigMap", "apply JobSet", "patch status"]
    for _ in range(3):
        assert await world.reconcile() == DONE
    assert len(world.requests) == 3
    world.restart()  # nothing that was remembered is needed
    assert await world.reconcile() == DONE
    assert len(world.requests) == 3


@pytest.mark.guarantee("C-1", "C-4")
async def test_no_key_is_reconciled_before_the_cache_shows_its_own_writes() -> None:
    world = world_with()
    world.lagging = True
    await world.reconcile()
    assert world.requests == ["apply ConfigMap", "apply JobSet"]
    for _ in range(5):
        assert isinstance(await world.reconcile(), ExpectationsPending)
    world.show(world.find("ConfigMap", "demo-runtime-snapshot"))
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.show(world.find("JobSet"))
    assert await world.reconcile() == DONE
    assert len(world.requests) == 2


@pytest.mark.guarantee("C-4", "E-5")
async def test_the_successor_of_a_name_sees_what_its_predecessor_left() -> None:
    """Otherwise it would apply its own JobSet over the one of the job before it, and take over its pods."""
    world = world_with()
    world.lagging = True
    await world.reconcile()
    world.remove("TrainJob")
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.put(trainjob_object(uid="uid-2"))
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.show(world.find("ConfigMap", "demo-runtime-snapshot"))
    world.show(world.find("JobSet"))
    assert isinstance(await world.reconcile(), RequeueAfter)  # garbage collection will come
    assert world.requests == ["apply ConfigMap", "apply JobSet"]


@pytest.mark.guarantee("C-5")
async def test_an_own_status_write_does_not_hold_up_the_successor() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    world.lagging = True
    world.change("TrainJob", status={})
    world.show(world.find("TrainJob"))
    await world.reconcile()
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.put(trainjob_object(uid="uid-2", suspend=True))
    assert not isinstance(await world.reconcile(), ExpectationsPending)


@pytest.mark.guarantee("K-3")
async def test_an_unreadable_trainjob_is_given_up_until_it_changes() -> None:
    world = world_with(suspend="yes")
    outcome = await world.reconcile()
    assert isinstance(outcome, TerminalError)
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"
    assert isinstance(await world.reconcile(), TerminalError)
    assert world.requests == ["patch status"]
    assert len(world.events) == 1


async def test_an_unreadable_trainjob_of_another_controller_is_left_alone(world: World) -> None:
    """Whoever manages it writes its status; two writers would fight."""
    world.put(trainjob_object(managedBy="kueue.x-k8s.io/multikueue", suspend="yes"))
    await world.reconcile()
    assert not world.patches
    assert not world.events
    world.put(trainjob_object(suspend="yes"))
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"


@pytest.mark.parametrize("status", [{"conditions": [{"message": "odd"}]}, {"conditions": None}, {"conditions": {}}])
async def test_an_odd_status_is_no_reason_to_fail(world: World, status: JsonObject) -> None:
    world.put(trainjob_object(suspend="yes", status=status))
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"


async def test_a_jobset_that_cannot_be_read_and_whose_runtime_is_gone_holds_nobody_up(world: World) -> None:
    """The plugin that fails is one of ours, and asked once."""
    world.put(runtime_object(), trainjob_object())
    await world.reconcile()
    world.remove("ConfigMap", "demo-runtime-snapshot")
    world.remove("TrainingRuntime", "rt")
    world.change("JobSet", status={"conditions": ["Failed"]})
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeNotFound"


async def test_a_blocked_job_is_looked_at_again_at_its_deadline(world: World) -> None:
    """The backoff of what blocks it may be much longer."""
    world.refusal = refused("no")
    world.put(trainjob_object(activeDeadlineSeconds=60), runtime_object())
    outcome = await world.reconcile()
    assert isinstance(outcome, Requeue)
    assert outcome.at_latest == 60
    await world.reconcile_after(60)
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"


async def test_a_deadline_beyond_the_calendar_is_no_deadline_soon() -> None:
    """activeDeadlineSeconds is any 64-bit number; it is looked at now and then, because clocks are set."""
    world = world_with(activeDeadlineSeconds=2**63 - 1)
    outcome = await world.reconcile()
    assert isinstance(outcome, RequeueAfter)
    assert outcome.seconds == LONGEST_REQUEUE


class Spinning:
    """A plugin that computes until the event loop has turned."""

    name = "spinning"

    def __init__(self) -> None:
        self.turns = 0
        self.threads: list[threading.Thread] = []

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        self.threads.append(threading.current_thread())
        before = self.turns
        while threading.current_thread() is not threading.main_thread() and self.turns < before + 100:
            pass


@pytest.mark.parametrize("large", ["TrainJob", "TrainingRuntime"])
async def test_the_event_loop_turns_while_a_large_job_is_planned(large: str) -> None:
    """Watches, webhooks and probes do not wait for it."""
    plugin = Spinning()
    world, objects = World(plugin), {"TrainJob": trainjob_object(suspend=True), "TrainingRuntime": runtime_object()}
    objects[large]["metadata"]["annotations"] = {"padding": "x" * LARGE}
    world.put(*objects.values())
    reconciled = asyncio.create_task(world.reconcile())
    while not reconciled.done():
        plugin.turns += 1
        await asyncio.sleep(0)
    assert reconciled.result() == DONE
    assert world.requests == ["apply ConfigMap", "apply JobSet", "patch status"]
    assert threading.main_thread() not in plugin.threads


async def test_a_usual_job_is_planned_without_a_thread() -> None:
    plugin = Spinning()
    world = World(plugin)
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    assert set(plugin.threads) == {threading.main_thread()}


DEEP = orjson.loads("[" * 200 + "]" * 200)
WHY = "exists but cannot be read: it is nested more than 150 levels deep; correct it"


def told(world: World) -> tuple[str, str]:
    """Reason and message of what is in the way."""
    condition = world.conditions["Blocked"]
    return condition["reason"], condition["message"]


async def settled(world: World) -> list[JsonObject]:
    """Reconcile until nothing happens, and return what was applied."""
    for _ in range(5):
        await world.reconcile()
    return world.applied


def snapshot() -> JsonObject:
    return build_snapshot(parse_trainjob(trainjob_object()), encode_runtime(runtime_object()))


@pytest.mark.parametrize(
    ("objects", "name"),
    [
        ([runtime_object(), {**jobset_of("uid-1"), "spec": {"odd": DEEP}}], "JobSet team/demo"),
        ([runtime_object(), {**snapshot(), "odd": DEEP}], "ConfigMap team/demo-runtime-snapshot"),
        ([{**runtime_object(), "odd": DEEP}], "TrainingRuntime team/rt"),
    ],
)
async def test_what_cannot_be_read_is_told_and_left_alone(world: World, objects: list[JsonObject], name: str) -> None:
    """It is neither missing nor written anew."""
    world.put(trainjob_object(), *objects)
    assert await settled(world) == []
    assert told(world) == ("ObjectUnreadable", f"{name} {WHY}")
    assert world.deleted == []
    assert any(WHY in note for note in world.events)


async def test_a_trainjob_that_cannot_be_read_is_told_of_by_an_event_and_its_status_stays(world: World) -> None:
    status = {"conditions": [{"type": "Complete", "status": "True"}]}
    world.put({**trainjob_object(), "odd": DEEP, "status": status}, runtime_object())
    assert isinstance(await world.reconcile(), TerminalError)
    assert await settled(world) == []
    assert world.patches == []
    [note] = world.events
    assert "the TrainJob cannot be read: it is nested more than 150 levels deep; correct it" in note


@pytest.mark.parametrize("ended", ["Complete", "Failed"])
async def test_a_trainjob_that_has_ended_stays_as_it_is_though_its_spec_cannot_be_read(ended: str) -> None:
    world = World()
    status = {"conditions": [{"type": ended, "status": "True"}]}
    world.put(trainjob_object(trainer={"numNodes": "two"}, status=status), runtime_object())
    assert await world.reconcile() is DONE
    assert world.patches == []
    [note] = world.events
    assert 'spec.trainer.numNodes: must be an integer, got "two"' in note


async def test_an_error_that_nobody_foresaw_is_told_by_the_trainjob(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("odd")

    world = world_with()
    with monkeypatch.context() as patched:
        patched.setattr(decider, "plan", fail)
        with pytest.raises(ZeroDivisionError):
            await world.reconcile()
    reason, message = told(world)
    assert reason == "InternalError"
    assert message == (
        "an error of Trainmaster or of a plugin for TrainJobs keeps the job from being worked on: "
        "ZeroDivisionError: odd; the log of the manager has more"
    )
    await settled(world)
    assert "Blocked" not in world.conditions


async def test_it_goes_on_once_it_can_be_read() -> None:
    uid = trainjob_object()["metadata"]["uid"]
    world = world_with({**jobset_of(uid), "spec": {"odd": DEEP}}, suspend=True)
    await settled(world)
    assert "Blocked" in world.conditions
    world.change("JobSet", spec={"suspend": True})
    assert [obj["kind"] for obj in await settled(world)] == ["ConfigMap", "JobSet"]
    assert list(world.conditions) == ["Suspended"]


async def test_a_finished_trainjob_stays_as_it_is(world: World) -> None:
    job = trainjob_object()
    job["status"] = {"conditions": [{"type": "Complete", "status": "True", "reason": "x", "message": ""}]}
    world.put(job, runtime_object(), {**jobset_of(job["metadata"]["uid"]), "spec": {"odd": DEEP}})
    assert await world.reconcile() == DONE
    assert await settled(world) == []
    assert world.patches == []


@pytest.mark.defect("B27")
def test_the_last_state_of_a_jobset_that_cannot_be_read_tells_nothing() -> None:
    world = world_with()
    uid = trainjob_object()["metadata"]["uid"]
    store = world.stores["jobset.x-k8s.io/v1alpha2", "JobSet"]
    deleted = DeletedWorkloads(world.trainjobs)
    store.put({**jobset_of(uid), "spec": {"odd": DEEP}})
    last = store.get("team/demo")
    deleted.on_workload_event(Delta("team/demo", None, None, old=last))
    assert len(deleted) == 0


ODD_FIELDS: list[Any] = [
    *(None, 0, "x", [], [1], {"f:spec": 0}, {"f:spec": []}, {"f:spec": {"k:{": {}}}, {"f:spec": {"k:[1]": {}}}),
    *(
        {"f:spec": {element: {}}}
        for element in ("", ".", "k:", "k:{}", "v:", "v:{", "i:0", "i:x", "x:y", "k:" + "[" * 2000)
    ),
    {"f:spec": {"f:list": {"k:{": {}, 'k:{"a":{}}': 1, "v:[": {}, "i:0": None, "k:1": {"f:a": {}}}}},
]
"""What clients may write."""


@pytest.mark.parametrize("fields", ODD_FIELDS, ids=str)
def test_managed_fields_of_any_shape_break_no_comparison(fields: Any) -> None:
    entry = {"manager": "trainer", "operation": "Apply", "fieldsV1": fields}
    desired = {"metadata": {"name": "a"}, "spec": {"list": [{"name": "x"}], "a": 1}}
    for entries in (fields, [fields], [entry], [None, entry, 7]):
        observed = {**desired, "metadata": {"name": "a", "managedFields": entries}}
        assert drift(desired, observed, owned_fields=owned_fields_of(observed, "trainer")) in Drift
        assert isinstance(managers_of(observed, ("f:spec", "f:list", 'k:{"name":"x"}', "f:image")), list)
        assert isinstance(managers_of(observed, ("f:spec", "k:{")), list)
