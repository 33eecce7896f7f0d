"""The status of a TrainJob as a function of what was observed, its deadline, and its time to live."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.objects import COMPLETE, SUSPENDED, runtime_object, trainjob_object
from support.world import World

from trainmaster.controller.diagnosis.diagnosis import Findings
from trainmaster.controller.diagnosis.first_failures import FirstFailure, FirstFailures
from trainmaster.controller.kube.rest.errors import Conflict
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.outcomes import DONE, LONGEST_REQUEUE, RequeueAfter
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.status_writer import status_patch
from trainmaster.controller.reconciling.trainjobs.observe import Observed
from trainmaster.controller.reconciling.trainjobs.plan import seconds_to_deadline
from trainmaster.controller.reconciling.trainjobs.status import Plan
from trainmaster.runtime.api.decoding import parse_trainjob
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime

NOW = "2026-01-01T00:10:00Z"
BLOCKED = Problem("RuntimeNotFound", "nowhere")


def follow(status: JsonObject, *, suspend: bool = False, **arguments: Any) -> JsonObject:
    raw = trainjob_object(suspend=suspend, status=status)
    problem, now = arguments.pop("problem", None), arguments.pop("now", NOW)
    findings = Findings(arguments.pop("first_failures", None), arguments.pop("waiting", None))
    seen = {"findings": findings, "report": arguments.pop("report", None), "verdict": arguments.pop("verdict", None)}
    observed = Observed(parse_trainjob(raw), raw, None, None, {}, StoreListers({}), **seen)
    return Plan(observed=observed, **arguments).status(problem, now=now)


def failures(*texts: str, is_open: bool = True) -> FirstFailures:
    return FirstFailures([FirstFailure(text, "Error") for text in texts], is_open=is_open)


def types(status: JsonObject) -> list[tuple[str, str]]:
    return [(condition["type"], condition["status"]) for condition in status.get("conditions", [])]


@pytest.mark.guarantee("F-4")
def test_time_of_a_condition_moves_only_when_it_flips() -> None:
    for before in (SUSPENDED, {**SUSPENDED, "reason": "Other"}):
        assert follow({"conditions": [before]}, suspend=True) == {"conditions": [SUSPENDED]}
    (resumed,) = follow({"conditions": [SUSPENDED]})["conditions"]
    assert (resumed["status"], resumed["lastTransitionTime"]) == ("False", NOW)


def test_jobs_status_follows_and_disappears_with_the_workloads() -> None:
    entry = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    status = follow({}, report=StatusReport(jobs_status=[entry]))
    assert status == {"jobsStatus": [entry]}
    assert follow(status, report=StatusReport(jobs_status=[])) == {}
    assert follow(status, report=None) == status


def test_a_condition_without_a_time_gets_one_once() -> None:
    timeless = {key: value for key, value in SUSPENDED.items() if key != "lastTransitionTime"}
    for condition in (timeless, timeless | {"lastTransitionTime": None}):
        status = follow({"conditions": [condition]}, suspend=True)
        assert status == {"conditions": [SUSPENDED | {"lastTransitionTime": NOW}]}


def test_the_first_end_counts() -> None:
    failed = follow({}, deadline_exceeded=True)
    assert failed["conditions"][0]["reason"] == "DeadlineExceeded"
    assert follow(failed, report=StatusReport(conditions=[COMPLETE])) == failed
    complete = {"conditions": [COMPLETE]}
    assert follow(complete, deadline_exceeded=True) == complete
    assert follow(complete, problem=BLOCKED) == complete


@pytest.mark.defect("B1")
def test_an_unsupported_runtime_fails_the_job() -> None:
    """B1: the original panicked for ever and never stored the condition."""
    (condition,) = follow({}, unsupported_runtime="Pod.v1")["conditions"]
    assert (condition["type"], condition["reason"]) == ("Failed", "TrainingRuntimeNotSupported")
    assert condition["message"] == "unsupported runtime: Pod.v1"


@pytest.mark.defect("U5")
def test_a_problem_is_a_condition_and_goes_away_without_a_trace() -> None:
    status = follow({}, problem=BLOCKED)
    assert types(status) == [("Blocked", "True")]
    assert status["conditions"][0]["message"] == "nowhere"
    assert follow(status, problem=None) == {}


@pytest.mark.defect("U1")
@pytest.mark.parametrize(
    ("suspend", "arguments", "expected"),
    [
        (True, {}, "Suspended"),
        (True, {"problem": BLOCKED}, "Blocked"),
        (True, {"report": StatusReport(conditions=[COMPLETE])}, "Complete"),
        (False, {}, None),
        (False, {"problem": BLOCKED}, "Blocked"),
        (False, {"deadline_exceeded": True}, "Failed"),
        (True, {"first_failures": failures("rank 1 failed")}, "Suspended"),
        (False, {"first_failures": failures("rank 1 failed")}, "ContainerFailed"),
        (False, {"first_failures": failures("rank 1 failed"), "problem": BLOCKED}, "Blocked"),
        (False, {"first_failures": failures("rank 1 failed"), "skipped_condition": {**SUSPENDED, "type": "A"}},
         "ContainerFailed"),
    ],
)  # fmt: skip
def test_what_matters_most_is_the_first_that_is_true(
    suspend: bool, arguments: dict[str, Any], expected: str | None
) -> None:
    """The State column shows that one; the original's shows the last condition, true or not."""
    status = follow({"conditions": [SUSPENDED]}, suspend=suspend, **arguments)
    holding = [condition["type"] for condition in status["conditions"] if condition["status"] == "True"]
    assert holding[:1] == ([expected] if expected else [])
    assert follow(status, suspend=suspend, **arguments) == status


@pytest.mark.defect("U1")
def test_the_order_changes_only_if_something_else_would_be_shown() -> None:
    """Statuses of the Go controller are not all written again by whoever takes over."""
    resumed = {**SUSPENDED, "status": "False", "reason": "Resumed", "message": "TrainJob is resumed"}
    foreign = {**SUSPENDED, "type": "acme.io/Audited"}
    for conditions in ([resumed, COMPLETE], [COMPLETE, foreign], [resumed, foreign]):
        assert follow({"conditions": conditions}) == {"conditions": conditions}
    assert follow({"conditions": [foreign, COMPLETE]}) == {"conditions": [COMPLETE, foreign]}


def test_a_job_that_completes_says_nothing_of_what_it_has_overcome() -> None:
    before = follow({}, first_failures=failures("attempt 0: NaN"))
    assert types(before) == [("ContainerFailed", "True")]
    assert follow(before) == before, "while nothing is known of failures, what was told stays"
    report = StatusReport(conditions=[COMPLETE])
    status = follow(before, report=report, first_failures=failures("attempt 0: NaN", is_open=False))
    assert status == {"conditions": [COMPLETE], "restarts": 1}


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({}, {"conditions": [1]}, {"status": {"conditions": [1]}}),
        ({"conditions": [1], "jobsStatus": [2]}, {"conditions": [1]}, {"status": {"jobsStatus": None}}),
        ({"conditions": [1]}, {}, {"status": None}),
    ],
)
def test_the_patch_holds_only_what_changed(old: JsonObject, new: JsonObject, patch: JsonObject | None) -> None:
    assert status_patch(old, new) == patch


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
        ({"activeDeadlineSeconds": 60},
         {"conditions": [SUSPENDED | {"status": "False", "lastTransitionTime": "2026-01-01t00:09:30.5z"}]}, 30.5),
        ({"activeDeadlineSeconds": 900},
         {"conditions": [SUSPENDED | {"status": "False", "lastTransitionTime": "yesterday"}]}, 300.0),
        ({"activeDeadlineSeconds": 10**12}, {}, 10.0**12 - 600),
    ],
)  # fmt: skip
def test_seconds_to_the_deadline(spec: JsonObject, status: JsonObject, expected: float | None) -> None:
    job = parse_trainjob(trainjob_object(status=status, **spec))
    assert seconds_to_deadline(job, datetime(2026, 1, 1, 0, 10, tzinfo=UTC)) == expected
