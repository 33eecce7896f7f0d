"""The status of a TrainJob, as a function of what was observed."""

from __future__ import annotations

from typing import Any

import pytest
from support.objects import COMPLETE, SUSPENDED, trainjob_object

from trainmaster.controller.diagnosis.conditions import FirstFailure, FirstFailures
from trainmaster.controller.diagnosis.diagnosis import Findings
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.status_writer import status_patch
from trainmaster.controller.reconciling.trainjobs.observe import Observed
from trainmaster.controller.reconciling.trainjobs.plan import Plan
from trainmaster.controller.reconciling.trainjobs.status import next_status
from trainmaster.runtime.api import parse_trainjob
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject

NOW = "2026-01-01T00:10:00Z"
BLOCKED = Problem("RuntimeNotFound", "nowhere")


def follow(status: JsonObject, *, suspend: bool = False, **arguments: Any) -> JsonObject:
    raw = trainjob_object(suspend=suspend, status=status)
    observed = Observed(parse_trainjob(raw), raw, None, None, {}, StoreListers({}))
    problem, skipped, now = (arguments.pop(name, None) for name in ("problem", "skipped", "now"))
    findings = Findings(arguments.pop("first_failures", None), arguments.pop("waiting", None))
    return next_status(observed, Plan(findings=findings, **arguments), problem, skipped=skipped, now=now or NOW)


def failures(*texts: str, is_open: bool = True) -> FirstFailures:
    return FirstFailures([FirstFailure(text, "Error") for text in texts], is_open=is_open)


def types(status: JsonObject) -> list[tuple[str, str]]:
    return [(condition["type"], condition["status"]) for condition in status.get("conditions", [])]


def test_a_running_job_that_was_never_suspended_has_no_condition() -> None:
    """The Kubeflow SDK takes a job without conditions to be running."""
    assert follow({}) == {}


def test_timeline_of_suspend_resume_complete() -> None:
    status = follow({}, suspend=True)
    assert types(status) == [("Suspended", "True")]
    status = follow(status)
    assert types(status) == [("Suspended", "False")]
    assert status["conditions"][0]["reason"] == "Resumed"
    status = follow(status, report=StatusReport(conditions=[COMPLETE], jobs_status=[]))
    assert types(status) == [("Suspended", "False"), ("Complete", "True")]
    assert status["conditions"][1] == COMPLETE


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
        (
            False,
            {"first_failures": failures("rank 1 failed"), "skipped": {**SUSPENDED, "type": "A"}},
            "ContainerFailed",
        ),
    ],
)
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


FAILED = {**COMPLETE, "type": "Failed", "reason": "FailedJobs", "message": "jobset failed"}


def test_a_job_that_fails_says_why_after_the_words_of_its_workload() -> None:
    told = failures("attempt 0: no", "attempt 1: NaN")
    status = follow({}, report=StatusReport(conditions=[FAILED]), first_failures=told)
    assert status["conditions"][0]["message"] == "jobset failed; attempt 1: NaN"
    assert status["conditions"][1]["message"] == "attempt 0: no\nattempt 1: NaN"
    assert follow(status, report=StatusReport(conditions=[FAILED])) == status, "the first end counts"
    silent = follow({}, report=StatusReport(conditions=[{**FAILED, "message": ""}]), first_failures=told)
    assert silent["conditions"][0]["message"] == "attempt 1: NaN"


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
