"""The state of a job in one word, its timeline, and the cause that its conditions tell of."""

from dataclasses import replace
from typing import Any

import pytest
from support.failing_pods import BACKING_OFF, RUNNING, TOLD, container_status, pod, terminated
from support.job_views import (
    NODES,
    at,
    condition,
    event,
    job,
    jobset,
    moment,
    pending,
    pytorchjob,
    running,
    trainjob,
    view,
)

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.condition_causes import cause_of
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.pods import missing_pods
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.timeline import MOST, timeline
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject

ALL = [running(rank, started=10 + rank) for rank in range(NODES)]


def test_a_job_whose_pods_all_run_runs_and_says_how_old_its_progress_is() -> None:
    state = state_of(view(jobsets=[jobset()], pods=ALL))
    assert (state.state, state.since, state.detail) == (State.RUNNING, moment(13), "4 pods")
    # A job that reports its progress says how old that is. One that hangs is running as far as anybody else can see.
    reported = {"trainerStatus": {"progressPercentage": 40, "lastUpdatedTime": at(60)}}
    state = state_of(view(trainjob(status=reported), jobsets=[jobset()], pods=ALL, now=3000))
    assert state.detail == "4 pods, 40 % done as it reported 49 minutes ago"
    state = state_of(view(trainjob(status=reported), jobsets=[jobset()], pods=ALL, now=90))
    assert state.detail == "4 pods, 40 % done as it reported just now"


def test_a_job_waits_until_all_its_pods_run_and_restarts_when_it_has_run() -> None:
    # A job waits while one of its pods is missing or does not run.
    missing = state_of(view(jobsets=[jobset()], pods=ALL[:3]))
    assert (missing.state, missing.since, missing.detail) == (State.WAITING, moment(0), "3 of 4 pods run")
    waiting = state_of(view(jobsets=[jobset()], pods=[*ALL[:3], pending(3)]))
    assert (waiting.state, waiting.detail) == (State.WAITING, "3 of 4 pods run")
    # A job that has run and runs no more as a whole restarts since its last failure.
    failed = pod(3, containers=[container_status(terminated(1, at=40))], phase="Failed")
    state = state_of(view(jobsets=[jobset()], pods=[*ALL[:3], failed]))
    assert (state.state, state.since) == (State.RESTARTING, moment(40))
    # A rank that was replaced counts once.
    old = pod(3, suffix="first", containers=[container_status(terminated(1, at=40))], phase="Failed", created=1)
    new = running(3, suffix="later", created=41, started=45)
    state = state_of(view(jobsets=[jobset()], pods=[*ALL[:3], old, new]))
    assert (state.state, state.since) == (State.RUNNING, moment(45))
    # Pods of an earlier attempt do not count.
    earlier = [running(rank, attempt=0) for rank in range(NODES)]
    restarted = jobset()
    restarted["status"]["restarts"] = 1
    state = state_of(view(jobsets=[restarted], pods=[*earlier, running(0, attempt=1)]))
    assert (state.state, state.detail) == (State.RESTARTING, "1 of 4 pods run")


def test_what_depends_on_others_is_not_wanted_before_its_turn() -> None:
    """While initializers run, nobody waits for the nodes."""
    ordered = jobset()
    initializer = {"name": "dataset-initializer", "replicas": 1, "template": {"spec": {"completions": 1}}}
    ordered["spec"]["replicatedJobs"][0]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    ordered["spec"]["replicatedJobs"].insert(0, initializer)
    state = state_of(view(jobsets=[ordered], pods=[running(0, job="dataset-initializer", started=7)]))
    assert (state.state, state.since) == (State.RUNNING, moment(7))
    ordered["status"]["replicatedJobsStatus"].append({"name": "dataset-initializer", "succeeded": 1})
    done = pod(0, terminated(0), job="dataset-initializer", phase="Succeeded")
    state = state_of(view(jobsets=[ordered], pods=[done]))
    assert (state.state, state.detail) == (State.WAITING, "1 of 5 pods run")


@pytest.mark.parametrize(
    ("job", "state", "since"),
    [
        (trainjob(condition("Complete", since=60)), State.COMPLETE, 60),
        (trainjob(condition("Failed", "FailedJobs", "jobset failed", since=60)), State.FAILED, 60),
        (trainjob(condition("Suspended", since=2), suspend=True), State.SUSPENDED, 2),
        (trainjob(condition("Suspended", since=90, status="False")), State.WAITING, 90),
        (trainjob(), State.WAITING, 0),
        (pytorchjob(condition("Succeeded", since=60)), State.COMPLETE, 60),
        (pytorchjob(condition("Failed", since=60)), State.FAILED, 60),
        (pytorchjob(condition("Suspended", since=2), suspend=True), State.SUSPENDED, 2),
    ],
)
def test_conditions_come_before_pods(job: JsonObject, state: State, since: float) -> None:
    found = state_of(view(job, jobsets=[], pods=[]))
    assert (found.state, found.since) == (state, moment(since))


def test_deletion_and_a_suspended_jobset_come_before_pods() -> None:
    # A suspended jobset suspends the job.
    assert state_of(view(jobsets=[jobset(suspend=True)], pods=[])).state is State.SUSPENDED
    # A job that is being deleted says so whatever its pods do.
    job = trainjob()
    job["metadata"]["deletionTimestamp"] = at(100)
    assert state_of(view(job, jobsets=[jobset()], pods=ALL)).state is State.TERMINATING


def test_without_a_look_at_pods_the_counts_of_the_status_decide() -> None:
    counts: dict[State, Any] = {
        State.RUNNING: [{"name": "node", "ready": 1}],
        State.WAITING: [{"name": "node", "ready": 0, "active": 1}],
    }
    for state, each in counts.items():
        assert state_of(view(trainjob(status={"jobsStatus": each}), jobsets=None, pods=None)).state is state
    assert state_of(view(trainjob(status={}), jobsets=None, pods=None)).state is State.WAITING


def test_a_job_of_the_training_operator_wants_the_replicas_of_its_spec() -> None:
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
    worker = running(0)
    worker["metadata"]["labels"] = labels
    state = state_of(view(pytorchjob(workers=1), pods=[worker]))
    assert (state.state, state.detail) == (State.WAITING, "1 of 2 pods run")


def test_of_more_pods_than_were_read_it_is_not_said_that_the_others_do_not_run() -> None:
    found = view(jobsets=[jobset(nodes=9000)], pods=[running(rank) for rank in range(3)], has_more_pods=True)
    ready = replace(found, object=trainjob(status={"jobsStatus": [{"name": "node", "ready": 1}]}))
    assert (state_of(ready).state, state_of(ready).detail) == (State.RUNNING, "3 pods run, and there are more")
    assert state_of(found).state is State.WAITING
    assert not missing_pods(found)


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
    assert (20, "rank 1: container node ends with exit code 137 (OOMKilled), restart 1") in told
    assert (40, "1 pod of attempt 1 is created") in told
    assert (50, "it is resumed") in told


def test_what_happened_in_one_second_is_told_attempt_by_attempt_and_its_end_last() -> None:
    pods = [
        pod(
            0,
            terminated(1, at=20, message=f"Connection reset in {number}"),
            attempt=number,
            created=20,
            suffix=str(number),
        )
        for number in (2, 0, 1)
    ]
    ends = trainjob(condition("Failed", since=20))
    told = [text for at, text in texts(view(ends, jobsets=[], pods=pods)) if at == 20 and "started" not in text]
    failed = "rank 0: container node ends with exit code 1"
    assert told == [
        "1 pod is created", failed,
        "1 pod of attempt 1 is created", failed,
        "1 pod of attempt 2 is created", failed,
        "it has failed: Failed",
    ]  # fmt: skip


@pytest.mark.parametrize(("restarts", "detail"), [(0, ""), (1, "jobset failed due to reaching max number of restarts")])
def test_a_limit_of_restarts_is_told_only_of_what_was_restarted(restarts: int, detail: str) -> None:
    limit = "jobset failed due to reaching max number of restarts"
    failed = trainjob(condition("Failed", "ReachedMaxRestarts", f"{limit}; {TOLD}"), status={"restarts": restarts})
    made = jobset()
    made["spec"]["failurePolicy"] = {"maxRestarts": restarts}
    made["status"]["restarts"] = restarts
    of = view(failed, jobsets=[made], pods=[])
    assert state_of(of).detail == detail
    assert f"it has failed: {f'{detail}; ' if detail else ''}{TOLD}" in [text for _, text in texts(of)]
    untold = view(trainjob(condition("Failed", "ReachedMaxRestarts", limit)), jobsets=[made], pods=[])
    assert (explain(untold).findings[0].cause is Cause.BACKOFF_LIMIT_EXCEEDED) is bool(restarts)


def test_what_is_not_known_of_pods_is_told_too() -> None:
    """Of pods that are gone only an embedded cluster tells, and of earlier starts of a container nobody."""
    gone = pod(0, terminated(1, at=20), phase="Failed")
    looping = container_status(RUNNING, last=terminated(), restarts=3)
    failed = trainjob(condition("Failed", since=60))
    known: Any = {"jobsets": [jobset(nodes=2)], "pods": [pod(1, containers=[looping], phase="Running")]}
    told = texts(view(failed, **known))
    assert (1, "1 pod is started again") in told
    assert told[-1] == (300, "of 1 pod nothing is known any more: deleted by now, or never created")
    told = texts(view(failed, **known, former_pods=[gone]))
    assert (0, "2 pods are created") in told
    assert (20, "rank 0: container node ends with exit code 1") in told
    assert told[-1][0] == 60


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
        ([("Failed", "NoProgress", "no progress for 9 min: node 1 wrote last")], "NoProgress"),
        ([("Failed", "LogRuleBroken", "exit code"), ("ContainerFailed", "Evicted", "")], "LogRuleBroken"),
        ([("Failed", "WorldSizeMismatch", "")], "WorldSizeMismatch"),
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
