"""Which failures of a TrainJob are told, in which words, and what is told of them as a condition."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failing_pods import FAILURE, SECOND

from trainmaster.controller.container_failures import ContainerFailure
from trainmaster.controller.diagnosis.first_failures import ATTEMPTS, FirstFailures, describe, read_condition

NAN = replace(FAILURE, message="Traceback (most recent call last):\nValueError: my loss is NaN\n")
LOST = replace(
    NAN, pod="demo-node-0-0-abcde", pod_uid="zero", rank=0, ranks=range(1), message="gloo: Connection closed by peer"
)
TOLD = (
    "attempt 0: rank 1 (pod demo-node-0-1-abcde, container node) failed at 2026-01-01T00:00:05Z with exit code 1: "
    "ValueError: my loss is NaN"
)
WHERE = "(pod demo-node-0-1-abcde, container node) failed at 2026-01-01T00:00:05Z with"


def noted(first_failures: FirstFailures, *failures: ContainerFailure) -> list[str]:
    return [each.text for each in first_failures.add(failures, {})]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (replace(NAN, exit_code=139), f"rank 1 {WHERE} exit code 139 (crashed: SIGSEGV, a bad memory access in native"),
        (replace(NAN, exit_code=137, reason="OOMKilled", message=""),
         f"rank 1 {WHERE} exit code 137 (OOMKilled: it needed more memory than its limit)"),
        (replace(NAN, exit_code=137, reason="ContainerStatusUnknown", message="The process was lost: the cluster"),
         f"rank 1 {WHERE} exit code 137 (ContainerStatusUnknown: nobody saw how it ended): The process was lost:"),
        (replace(NAN, exit_code=128, reason="StartError", message="exec: 'trian.py': not found"),
         f"rank 1 {WHERE} exit code 128 (StartError: the container could not be started): exec: 'trian.py': not"),
        (replace(NAN, message=""),
         f"rank 1 {WHERE} exit code 1; with terminationMessagePolicy: FallbackToLogsOnError its last lines would"),
        (replace(NAN, message="", tells_log=True), f"rank 1 {WHERE} exit code 1"),
        (replace(LOST, rank=1, ranks=NAN.ranks, pod=NAN.pod),
         f"rank 1 {WHERE} exit code 1 (it lost another rank): gloo: Connection closed"),
        (replace(NAN, ranks=None), f"node 1 {WHERE} exit code 1: ValueError"),
        (replace(NAN, ranks=range(2, 4)), f"node 1, ranks 2-3 {WHERE} exit code 1: ValueError"),
        (replace(NAN, ranks=range(2, 4), message="[rank3]: ValueError: x"),
         f"rank 3 on node 1 {WHERE} exit code 1: ValueError"),
        (replace(NAN, rank=None, replicated_job="launcher"), f"launcher {WHERE} exit code 1: ValueError"),
        (replace(NAN, rank=None, replicated_job=""), f"node {WHERE} exit code 1: ValueError"),
        (replace(NAN, at=""), "rank 1 (pod demo-node-0-1-abcde, container node) failed with exit code 1"),
        (replace(NAN, reason="not a reason"), f"rank 1 {WHERE} exit code 1: ValueError"),
    ],
    ids=[
        "crash",
        "memory",
        "unseen",
        "start",
        "unsaid",
        "silent",
        "lost",
        "one",
        "two",
        "rank",
        "launcher",
        "nobody",
        "no time",
        "odd reason",
    ],
)  # fmt: skip
def test_it_is_said_what_failed_where_when_how_and_why(failure: ContainerFailure, text: str) -> None:
    assert describe(failure).startswith(text)


def test_the_condition_tells_of_the_last_attempts_and_is_gone_when_all_is_ready_again() -> None:
    job = FirstFailures()
    assert (job.condition, job.cause) == (None, "")
    for attempt in range(7):
        noted(job, replace(NAN, attempt=attempt, reason="OOMKilled" if attempt == 6 else "Error"))
    condition = job.condition
    assert condition is not None
    assert (condition["type"], condition["status"], condition["reason"]) == ("ContainerFailed", "True", "OutOfMemory")
    lines = condition["message"].splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"attempt {attempt}" for attempt in range(2, 7)]
    assert job.cause == lines[-1]
    job.close()
    assert (job.condition, job.cause) == (None, "")


def test_of_two_attempts_of_one_name_the_open_one_is_corrected() -> None:
    job = FirstFailures()
    noted(job, NAN)
    job.close()
    later = replace(LOST, at=SECOND.format(40))
    noted(job, NAN, later)
    (text,) = noted(job, NAN, later, replace(NAN, pod_uid="two", at=SECOND.format(39)))
    assert [each.text for each in job.told] == [TOLD, text]


def test_what_somebody_else_wrote_into_the_condition_is_kept_and_stops_nobody() -> None:
    other = read_condition({"type": "ContainerFailed", "status": "True", "message": "hello\n\nattempt 99"})
    assert noted(other, NAN) == [TOLD]
    assert read_condition({"type": "ContainerFailed", "status": "True"}).condition is None


_failures = st.lists(
    st.builds(
        lambda pod, attempt, run, at, code, message, stopped: replace(
            NAN,
            pod_uid=pod,
            attempt=attempt,
            run=run,
            at=SECOND.format(at),
            exit_code=code,
            message=message,
            stopped=stopped,
        ),
        st.sampled_from("abc"),
        st.integers(0, 2),
        st.integers(0, 3),
        st.integers(0, 59),
        st.sampled_from([1, 137, 255, -1]),
        st.sampled_from(["", "ValueError: x", "attempt 0: no\nattempt 1: no"]),
        st.booleans(),
    ),
    max_size=8,
)


@given(st.lists(_failures, max_size=5))
def test_nothing_is_told_twice_and_it_is_bounded_whatever_is_seen(seen: Sequence[list[ContainerFailure]]) -> None:
    job = FirstFailures()
    told: list[str] = []
    for failures in seen:
        unique = {(each.pod_uid, each.run): each for each in failures}.values()
        told += noted(job, *unique)
        assert noted(job, *unique) == []
        assert len(job.told) <= ATTEMPTS
        if job.condition is not None:
            assert len(job.condition["message"].splitlines()) == len(job.told)
            assert read_condition(job.condition).condition == job.condition
    assert len(told) == len(set(told))
