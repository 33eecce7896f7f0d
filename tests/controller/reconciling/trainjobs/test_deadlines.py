"""Deadlines of TrainJobs, and finished ones that outlive their time to live."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.objects import COMPLETE, SUSPENDED, runtime_object, trainjob_object
from support.world import World

from trainmaster.controller.kube.rest.errors import Conflict
from trainmaster.controller.reconciling.outcomes import DONE, LONGEST_REQUEUE, RequeueAfter
from trainmaster.controller.reconciling.trainjobs.plan import seconds_to_deadline
from trainmaster.runtime.api import parse_trainjob
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime


def _world(*, condition: str = "Complete", ttl: int | None = None, runtime_ttl: int | None = None) -> World:
    """A TrainJob that ended when the clock started, with the snapshot of its runtime."""
    world = World()
    ended = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    end = {"type": condition, "status": "True", "reason": "End", "message": "", "lastTransitionTime": ended}
    spec: dict[str, Any] = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    job = trainjob_object(status={"conditions": [end]}, **spec)
    runtime = runtime_object()
    if runtime_ttl is not None:
        runtime["spec"]["runPolicy"] = {"ttlSecondsAfterFinished": runtime_ttl}
    world.put(job, _snapshot(job, runtime))
    return world


def _snapshot(job: JsonObject, runtime: JsonObject) -> JsonObject:
    snapshot = build_snapshot(parse_trainjob(job), encode_runtime(runtime))
    snapshot["metadata"] |= {"uid": "snapshot", "resourceVersion": "8"}
    return snapshot


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
async def test_a_finished_job_is_deleted_when_its_time_has_passed(condition: str) -> None:
    world = _world(condition=condition, ttl=60)
    assert await world.reconcile() == RequeueAfter(60)
    assert world.requests == []
    assert await world.reconcile_after(60) == DONE
    assert world.deleted == [("demo", "uid-1")]
    assert world.events == ["it had ended, and was deleted because its ttlSecondsAfterFinished was over"]
    assert await world.reconcile() == DONE
    assert world.requests == ["delete TrainJob"]


async def test_without_a_time_to_live_a_job_is_kept() -> None:
    world = _world()
    assert await world.reconcile_after(timedelta(days=3650).total_seconds()) == DONE
    assert world.requests == []


@pytest.mark.parametrize(("ttl", "runtime_ttl", "expected"), [(None, 30, 30), (90, 30, 90)])
async def test_the_job_counts_before_its_runtime(ttl: int | None, runtime_ttl: int, expected: int) -> None:
    world = _world(ttl=ttl, runtime_ttl=runtime_ttl)
    assert await world.reconcile() == RequeueAfter(expected)
    await world.reconcile_after(expected)
    assert world.requests == ["delete TrainJob"]


async def test_a_long_time_is_looked_at_again_because_clocks_are_set() -> None:
    world = _world(ttl=7 * 24 * 3600)
    assert await world.reconcile() == RequeueAfter(LONGEST_REQUEUE)


async def test_a_job_that_somebody_changed_meanwhile_is_not_deleted() -> None:
    """Whoever raises the time to live at the last moment keeps the job (C-10)."""
    world = _world(ttl=60)
    world.clock.step(60)
    world.lagging = True
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "ttlSecondsAfterFinished": 600})
    with pytest.raises(Conflict):
        await world.reconcile()
    assert world.find("TrainJob")["spec"]["ttlSecondsAfterFinished"] == 600
    world.lagging = False
    world.show(world.find("TrainJob"))
    assert isinstance(await world.reconcile(), RequeueAfter)


async def test_an_unusable_snapshot_deletes_nothing() -> None:
    world = _world(runtime_ttl=0)
    world.change("ConfigMap", name="demo-runtime-snapshot", data={"runtime": "{"})
    assert await world.reconcile() == DONE
    assert world.requests == []


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, None),
        ({"activeDeadlineSeconds": 900}, {}, 300.0),
        ({"activeDeadlineSeconds": 60, "suspend": True}, {}, None),
        ({"activeDeadlineSeconds": 60}, {"conditions": [COMPLETE]}, None),
        ({"activeDeadlineSeconds": 60}, {"conditions": [SUSPENDED]}, 60.0),
        # Another writer's spelling of a time; what is no time at all does not count.
        (
            {"activeDeadlineSeconds": 60},
            {"conditions": [SUSPENDED | {"status": "False", "lastTransitionTime": "2026-01-01t00:09:30.5z"}]},
            30.5,
        ),
        (
            {"activeDeadlineSeconds": 900},
            {"conditions": [SUSPENDED | {"status": "False", "lastTransitionTime": "yesterday"}]},
            300.0,
        ),
        ({"activeDeadlineSeconds": 10**12}, {}, 10.0**12 - 600),
    ],
)
def test_seconds_to_the_deadline(spec: JsonObject, status: JsonObject, expected: float | None) -> None:
    job = parse_trainjob(trainjob_object(status=status, **spec))
    assert seconds_to_deadline(job, datetime(2026, 1, 1, 0, 10, tzinfo=UTC)) == expected
