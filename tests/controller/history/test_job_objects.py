"""Records of jobs: what of an object becomes one, and what is in it."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from support.history import at, condition, record, running, trainjob

from trainmaster.controller.history.job_objects import deleted_record, is_ready, progress_of, record_of
from trainmaster.controller.history.record import (
    LONGEST_RECORD,
    JobRecord,
    Sample,
    TimelineEntry,
    bounded,
    gone,
    merged,
    read_record,
)
from trainmaster.runtime.jsontree import JsonObject

GPU = "nvidia.com/gpu"


def jobset(*, replicas: int = 1, parallelism: int = 4, gpus: int | str = 8, restarts: int = 0) -> JsonObject:
    resources = {"limits": {GPU: str(gpus), "memory": "1Gi"}, "requests": {"cpu": "4"}}
    node = {
        "parallelism": parallelism,
        "template": {"spec": {"containers": [{"name": "node", "resources": resources}]}},
    }
    fetch = {"template": {"spec": {"containers": [{"name": "dataset-initializer"}]}}}
    return {
        "kind": "JobSet",
        "spec": {
            "replicatedJobs": [
                {"name": "dataset-initializer", "replicas": 1, "template": {"spec": fetch}},
                {"name": "node", "replicas": replicas, "template": {"spec": node}},
            ]
        },
        "status": {"restarts": restarts},
    }


def test_a_trainjob_that_has_succeeded_is_told_as_a_whole() -> None:
    metrics = [{"name": "loss", "value": "0.1"}]
    reported = {"progressPercentage": 100, "metrics": metrics, "lastUpdatedTime": at(40)}
    complete = condition("Complete", 50, reason="AllJobsCompleted", message="jobset completed successfully")
    resumed = condition("Suspended", 5, status="False", reason="Resumed", message="TrainJob is resumed")
    job = trainjob(status={"conditions": [resumed, complete], "trainerStatus": reported})
    job["metadata"]["annotations"] = {"who": "ann@example.com"}
    found = record_of(job, [jobset(restarts=2)], started=at(7), user_key="who")
    assert {name: value for name, value in found.summary().items() if value not in ("", None)} == {
        "uid": "1-2-3",
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "namespace": "team-a",
        "name": "train",
        "runtime": "torch-distributed",
        "user": "ann@example.com",
        "nodes": 4,
        "accelerators": {GPU: 32},
        "goodput": {"queuedSeconds": 300, "startingSeconds": 120, "productiveSeconds": 2580},
        "created": at(0),
        "started": at(7),
        "ended": at(50),
        "result": "Succeeded",
        "message": "jobset completed successfully",
        "restarts": 2,
        "suspensions": 0,
        "progressPercentage": 100,
        "metrics": {"loss": "0.1"},
    }
    assert [(each.time, each.event) for each in found.timeline] == [
        (at(0), "Created"),
        (at(5), "Resumed"),
        (at(7), "Started"),
        (at(50), "Complete"),
    ]


FAILURE = (
    "jobset failed due to one or more job failures; attempt 1, restart 2: rank 3 (pod train-node-0-3-abcde, container "
    "node) failed at 2026-01-31T11:30:00Z with exit code 137 (OOMKilled: it needed more memory than its limit)"
)


def test_a_trainjob_that_has_failed_tells_cause_exit_code_and_restarts() -> None:
    conditions = [
        condition("Failed", 31, reason="FailedJobs", message=FAILURE),
        condition("ContainerFailed", 30, reason="OOMKilled", message=FAILURE.partition("; ")[2]),
    ]
    found = record_of(trainjob(status={"conditions": conditions}), [jobset()])
    assert (found.result, found.cause, found.exit_code, found.restarts) == ("Failed", "OutOfMemory", 137, 3)
    assert found.message == FAILURE
    # What a trainjob says itself counts where there is no jobset yet.
    trainer = {"numNodes": 3, "resourcesPerNode": {"limits": {GPU: 2, "cpu": "1"}}}
    found = record_of(trainjob(trainer=trainer))
    assert (found.nodes, found.accelerators, found.has_ended) == (3, {GPU: 6}, False)
    assert record_of(trainjob()).nodes is None
    # A trainjob is ready when all of its nodes are.
    assert is_ready(parts(active=2, ready=2))
    assert not is_ready(parts(active=2, ready=1))
    assert not is_ready(parts(succeeded=2))
    assert not is_ready(trainjob())


def test_causes_are_told_of_what_has_not_succeeded() -> None:
    # The cause of a job that has not ended is told too.
    conditions = [condition("Blocked", 1, reason="RuntimeNotFound"), condition("Suspended", 1, status="False")]
    assert record_of(trainjob(status={"conditions": conditions})).cause == "RuntimeMissing"
    assert record_of(trainjob(status={"conditions": conditions[1:]})).cause == ""
    # A job that has succeeded has no cause.
    conditions = [
        condition("Complete", 2),
        condition("ContainerFailed", 1, reason="OOMKilled", message="exit code 137"),
    ]
    found = record_of(trainjob(status={"conditions": conditions}))
    assert (found.cause, found.exit_code) == ("", None)
    # The timeline tells of each attempt once.
    attempts = "attempt 0: rank 0 failed\nattempt 1: rank 2 failed"
    found = record_of(
        trainjob(status={"conditions": [condition("ContainerFailed", 9, reason="Error", message=attempts)]})
    )
    assert found.timeline[-1].text == "Error: attempt 1: rank 2 failed"
    # The exit code is that of the last attempt, whatever its program says.
    attempts = (
        "attempt 0: rank 0 (pod a, container node) failed with exit code 1: OSError: no disk\n"
        "attempt 1: rank 2 (pod b, container node) failed with exit code 3: ValueError: ls ended with exit code 2"
    )
    conditions = [
        condition("ContainerFailed", 9, reason="ContainerFailed", message=attempts),
        condition("Failed", 9, reason="FailedJobs", message=f"jobset failed; {attempts.splitlines()[1]}"),
    ]
    assert record_of(trainjob(status={"conditions": conditions})).exit_code == 3
    assert record_of(trainjob(status={"conditions": conditions[1:]})).exit_code == 3


def test_a_job_of_v1_is_told_as_a_whole() -> None:
    pods = {"spec": {"containers": [{"resources": {"limits": {GPU: 1}}}]}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "mnist", "namespace": "team-a", "uid": "9", "creationTimestamp": at(0)},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": pods}, "Worker": {"replicas": 3, "template": pods}}},
        "status": {
            "startTime": at(1),
            "completionTime": at(9),
            "replicaStatuses": {"Master": {"failed": 1, "restarts": 2}},
            "conditions": [
                condition("Created", 0),
                condition("Running", 2, status="False"),
                condition("Failed", 9, reason="PyTorchJobFailed", message="... because 1 Master replica(s) failed."),
            ],
        },
    }
    found = record_of(job)
    assert (found.kind, found.result, found.cause, found.runtime) == ("PyTorchJob", "Failed", "Unknown", "")
    assert (found.started, found.ended, found.nodes, found.accelerators) == (at(1), at(9), 4, {GPU: 4})
    assert found.restarts == 2


def test_a_job_that_is_deleted_keeps_the_end_that_it_had() -> None:
    waiting = trainjob(status={"conditions": [condition("Blocked", 1, reason="RuntimeNotFound", message="no runtime")]})
    found = deleted_record(waiting, at=at(3))
    assert (found.result, found.ended, found.deleted, found.cause) == ("Deleted", at(3), at(3), "RuntimeMissing")
    assert found.message == "the job was deleted before it had ended"
    waiting["metadata"]["deletionTimestamp"] = at(2)
    assert deleted_record(waiting, at=at(3)).deleted == at(2)
    # A job that is deleted after its end keeps it.
    found = deleted_record(trainjob(status={"conditions": [condition("Complete", 2)]}), at=at(3))
    assert (found.result, found.ended, found.deleted) == ("Succeeded", at(2), at(3))


def parts(**counts: int) -> JsonObject:
    return trainjob(
        status={"jobsStatus": [{"name": "dataset-initializer", "succeeded": 1}, {"name": "node", **counts}]}
    )


def test_numbers_and_times_that_nobody_meant_are_kept_in_bounds() -> None:
    reported = {"progressPercentage": 2**63, "lastUpdatedTime": "9" * 100_000}
    end = {**condition("Failed", 1, message="exit code 999"), "lastTransitionTime": "9" * 100_000}
    job = trainjob(status={"conditions": [end], "trainerStatus": reported})
    job["metadata"]["creationTimestamp"] = "x" * 100_000
    for gpus in (2**62, "-1e30"):
        huge = jobset(replicas=2**62, parallelism=2**62, gpus=gpus, restarts=-(2**70))
        written = orjson.dumps(record_of(job, [huge], started="y" * 100_000).to_json())
        assert len(written) < LONGEST_RECORD


FIELDS = ("type", "status", "message", "name", "conditions", "jobsStatus", "metrics", "replicas", "template", "spec")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(spec=JSON, status=JSON, conditions=JSON, reported=JSON, replicated=JSON)
def test_any_object_has_a_record(spec: Any, status: Any, conditions: Any, reported: Any, replicated: Any) -> None:
    for kind in ("TrainJob", "PyTorchJob"):
        for its_status in (status, {"conditions": conditions, "trainerStatus": reported, "jobsStatus": replicated}):
            for its_spec in (spec, {"trainer": replicated, "xReplicaSpecs": {"Worker": replicated}}):
                job = {**trainjob(), "kind": kind, "spec": its_spec, "status": its_status}
                made = deleted_record(job, [{"kind": "JobSet", "spec": {"replicatedJobs": replicated}}], at=at(1))
                assert made.uid == "1-2-3"
                is_ready(job), progress_of(job)


def test_a_record_is_read_back_as_it_was_written() -> None:
    whole = record(
        1,
        nodes=4,
        accelerators={"nvidia.com/gpu": 32},
        started=at(1),
        result="Failed",
        cause="OutOfMemory",
        message="rank 1 failed",
        exit_code=137,
        restarts=2,
        suspensions=1,
        samples=(Sample(at(2), 50, {"loss": "0.5"}),),
        timeline=(TimelineEntry(at(0), "Created"), TimelineEntry(at(3), "Failed", "rank 1 failed")),
    )
    assert read_record(orjson.loads(orjson.dumps(whole.to_json()))) == whole
    # A summary is read with the last numbers.
    found = read_record(record(samples=[Sample(at(1), 10), Sample(at(2), 90, {"loss": "0.1"})]).summary())
    assert [(each.percentage, each.metrics) for each in found.samples] == [(90, {"loss": "0.1"})]
    # What happened within a second is told before the end.
    events = ("Deleted", "Failed", "Started", "ContainerFailed")
    found = bounded(record(timeline=[TimelineEntry(at(1), event) for event in events]))
    assert [each.event for each in found.timeline] == ["Started", "ContainerFailed", "Failed", "Deleted"]


def test_the_end_of_a_job_is_the_first_one_that_was_seen() -> None:
    # The first end counts.
    first = record(1, result="Failed", message="first")
    assert merged(first, record(1, ended=at(9), result="Succeeded", message="later")).message == "first"
    assert merged(running(1), first).result == "Failed"
    assert merged(first, running(1)).result == "Failed"
    # What only seemed deleted has ended as it did.
    missing = gone(running(1), at=at(5), text="the job was deleted")
    assert (missing.result, missing.message) == ("Deleted", "the job was deleted before it had ended")
    assert merged(missing, record(1)).result == "Succeeded"
    assert merged(record(1), missing).result == "Succeeded"
    # A job that is deleted after its end keeps it.
    found = merged(record(1), gone(record(1), at=at(50), text="the job was deleted"))
    assert (found.result, found.ended, found.deleted, found.message) == ("Succeeded", at(1), at(50), "")
    assert [each.event for each in found.timeline] == ["Deleted"]
    # What is known of one and not of the other is known.
    before = running(nodes=4, started=at(2), user="ann", accelerators={"nvidia.com/gpu": 8}, restarts=3)
    found = merged(before, record(started=at(3)))
    assert (found.nodes, found.started, found.user, found.restarts) == (4, at(2), "ann", 3)
    assert found.accelerators == {"nvidia.com/gpu": 8}


def test_suspensions_count_once_and_what_no_store_takes_is_left_out() -> None:
    # Each suspension counts once.
    def suspended(*minutes: int) -> JobRecord:
        return running(
            suspensions=1,
            timeline=[TimelineEntry(at(0), "Created"), *(TimelineEntry(at(m), "Suspended") for m in minutes)],
        )

    twice = merged(merged(suspended(1), suspended(1)), suspended(5))
    assert merged(twice, suspended(5)).suspensions == 2
    # What no store takes and credentials are left out.
    found = bounded(record(message="a\0b \ud800 Bearer abcdefghijklmnopqrstuvwxyz0123"))
    assert found.message == "ab ? Bearer [redacted]"
    orjson.dumps(found.to_json())


RECORDS = st.builds(
    lambda ended, result, started, restarts, events, samples: record(
        ended=ended if result else "",
        result=result,
        started=started,
        restarts=restarts,
        timeline=[TimelineEntry(at(minute), event) for minute, event in events],
        samples=[Sample(at(minute), minute) for minute in samples],
    ),
    ended=st.integers(0, 30).map(at),
    result=st.sampled_from(["", "Succeeded", "Failed", "Deleted"]),
    started=st.one_of(st.just(""), st.integers(0, 30).map(at)),
    restarts=st.integers(0, 3),
    events=st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["Created", "Suspended", "Resumed"])), max_size=18),
    samples=st.lists(st.integers(0, 99), max_size=50),
)


@given(RECORDS, RECORDS)
def test_what_is_recorded_twice_is_there_once(one: JobRecord, other: JobRecord) -> None:
    once = merged(bounded(one), bounded(other))
    twice = merged(once, bounded(other)).to_json()
    # Samples that were thinned out may come back for a moment; the numbers of the job do not change.
    assert twice == once.to_json() | {name: twice[name] for name in ("samples", "timeline")}
    assert len(once.timeline) <= 40
    assert len(once.samples) <= 60
