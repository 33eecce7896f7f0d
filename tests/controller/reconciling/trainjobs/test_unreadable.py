"""What exists and cannot be read is not missing: it is told, and nothing is built, deleted or made again."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from support.objects import runtime_object, trainjob_object
from support.world import World, jobset_of, world_with

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.reconciling.drift import Drift, drift, owned_fields_of
from trainmaster.controller.reconciling.outcomes import DONE, TerminalError
from trainmaster.controller.reconciling.trainjobs import decider
from trainmaster.controller.reconciling.trainjobs.observe import DeletedWorkloads
from trainmaster.controller.reconciling.write_backoff import managers_of
from trainmaster.runtime.api import parse_trainjob
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime

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
async def test_what_cannot_be_read_is_told_and_left_alone(objects: list[JsonObject], name: str) -> None:
    """It is neither missing nor written anew."""
    world = World()
    world.put(trainjob_object(), *objects)
    assert await settled(world) == []
    assert told(world) == ("ObjectUnreadable", f"{name} {WHY}")
    assert world.deleted == []
    assert any(WHY in note for note in world.events)


async def test_a_trainjob_that_cannot_be_read_is_told_of_by_an_event_and_its_status_stays() -> None:
    world = World()
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


async def test_a_finished_trainjob_stays_as_it_is() -> None:
    world = World()
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
