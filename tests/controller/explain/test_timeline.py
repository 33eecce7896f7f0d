"""The timeline, and the cause that conditions tell of, in the words of those who write them."""

from __future__ import annotations

import pytest
from support.failing_pods import BACKING_OFF, container_status, pod, terminated
from support.job_views import NODES, at, condition, event, job, jobset, moment, running, trainjob, view

from trainmaster.controller.explain.conditions import cause_of
from trainmaster.controller.explain.timeline import MOST, timeline
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject


def texts(of: JobView) -> list[tuple[float, str]]:
    return [((each.at - moment(0)).total_seconds(), each.text) for each in timeline(of)]


def test_the_life_of_a_job_is_told_in_order() -> None:
    snapshot = {"kind": "ConfigMap", "metadata": {"name": "s", "namespace": "team", "creationTimestamp": at(1)}}
    scheduled = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(4)}]}
    pods = [running(rank, started=6 + rank, created=3, **scheduled) for rank in range(NODES)]
    done = trainjob(condition("Complete", message="jobset completed successfully", since=60))
    assert texts(view(done, snapshots=[snapshot], jobsets=[jobset(created=2)], jobs=[job(created=2)], pods=pods)) == [
        (0, "TrainJob is created"),
        (1, "its runtime is frozen in a snapshot"),
        (2, "its JobSet is created"),
        (2, "1 Job is created"),
        (3, "4 pods are created"),
        (4, "4 pods are given a node"),
        (6, "4 pods are started"),
        (60, "it is complete: jobset completed successfully"),
    ]
    started = next(each for each in timeline(view(pods=pods)) if each.text == "4 pods are started")
    assert started.until == moment(9)


def test_failures_restarts_and_suspensions_are_told() -> None:
    failing = container_status(BACKING_OFF, last=terminated(137, at=20, reason="OOMKilled"), restarts=1)
    told = texts(
        view(
            trainjob(condition("Suspended", since=50, status="False")),
            pods=[pod(1, containers=[failing], phase="Running"), running(0, attempt=1, created=40, started=41)],
        )
    )
    assert (20, "rank 1: container node ends with exit code 137 (OOMKilled)") in told
    assert (40, "1 pod of attempt 1 is created") in told
    assert (50, "it is resumed") in told


def test_warnings_that_repeat_are_told_once() -> None:
    events = [
        event("FailedScheduling", "0/1 nodes", kind="Pod", name=f"demo-{rank}", first=5 + rank, last=90, count=3)
        for rank in range(NODES)
    ]
    found = [each for each in timeline(view(events=events)) if each.text.startswith("FailedScheduling")]
    assert [(each.at, each.until, each.text) for each in found] == [
        (moment(5), moment(90), "FailedScheduling (12 times): 0/1 nodes")
    ]


def test_it_is_bounded_and_so_are_notes() -> None:
    # It is bounded and keeps both ends.
    pods = [
        pod(0, containers=[container_status(terminated(1, at=20))], phase="Failed", attempt=attempt, created=attempt)
        for attempt in range(60)
    ]
    found = timeline(view(trainjob(condition("Failed", since=59)), pods=pods))
    assert len(found) == MOST
    assert found[0].text == "TrainJob is created"
    assert any("are left out here" in each.text for each in found)
    # Long notes are cut and of one line.
    (odd,) = [each for each in timeline(view(events=[event("Odd", "a\nb " * 500)])) if each.text.startswith("Odd")]
    assert len(odd.text) < 400
    assert "\n" not in odd.text


def conditions(*listed: tuple[str, str, str]) -> dict[str, JsonObject]:
    """Conditions that hold, each by its type, reason and message."""
    return {
        kind: {"type": kind, "status": "True", "reason": reason, "message": message} for kind, reason, message in listed
    }


@pytest.mark.parametrize(
    ("listed", "cause"),
    [
        ([("Failed", "DeadlineExceeded", "exceeded")], "DeadlineExceeded"),
        ([("Failed", "TrainingRuntimeNotSupported", "")], "RuntimeMissing"),
        ([("Failed", "FailedJobs", "jobset failed")], "Unknown"),
        ([("Failed", "", "rank 0 failed with exit code 1")], "ContainerFailed"),
        ([("Failed", "", "(Evicted: The node was low on resource: memory)")], "Evicted"),
        ([("Failed", "", "(PreemptionByScheduler: preempting)")], "Preempted"),
        ([("Blocked", "RuntimeNotFound", "")], "RuntimeMissing"),
        ([("Blocked", "PluginFailed", "")], "PluginFailed"),
        ([("Blocked", "NameTaken", "")], "Unknown"),
        ([("ContainerFailed", "Error", "attempt 0: rank 0")], "ContainerFailed"),
        ([("ContainerFailed", "OutOfMemory", "attempt 0: rank 0")], "OutOfMemory"),
        ([("Failed", "", "exit code 1"), ("ContainerFailed", "NodeLost", "")], "NodeLost"),
        ([("Failed", "ReachedMaxRestarts", "jobset failed")], "BackoffLimitExceeded"),
        (
            [
                ("Failed", "ReachedMaxRestarts", "attempt 0: (OOMKilled); attempt 1: exit code 1"),
                ("ContainerFailed", "ContainerFailed", "attempt 0: (OOMKilled)\nattempt 1"),
            ],
            "ContainerFailed",
        ),
        ([("ContainerFailed", "Evicted", ""), ("Waiting", "Unschedulable", "")], "Unschedulable"),
        ([("Waiting", "Unschedulable", "")], "Unschedulable"),
        ([("Waiting", "Weather", "")], "Unknown"),
        ([("Suspended", "", "")], "Suspended"),
        ([], None),
    ],
)
def test_the_cause_is_what_the_conditions_tell(listed: list[tuple[str, str, str]], cause: str | None) -> None:
    assert cause_of(conditions(*listed)) == cause
