"""The cause of a failure, from the conditions that a manager writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.failing_pods import FAILURE
from support.observed_jobs import condition

from trainmaster.controller.container_failures import ContainerFailure
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.reconciling.trainjobs.first_failures import FirstFailures
from trainmaster.controller.reconciling.trainjobs.job_metrics.failure_cause import (
    EXIT_CLASSES,
    Failure,
    exit_class,
    failure_of,
)
from trainmaster.runtime.jsontree import JsonObject


def holding(*conditions: JsonObject) -> dict[str, JsonObject]:
    return {each["type"]: each for each in conditions}


@pytest.mark.parametrize(
    ("failure", "cause", "kind"),
    [
        (FAILURE, Cause.CONTAINER_FAILED, "error"),
        (replace(FAILURE, exit_code=127), Cause.CONTAINER_FAILED, "not found"),
        (replace(FAILURE, exit_code=130, message="lost: with\nexit code 7"), Cause.CONTAINER_FAILED, "other signal"),
        (replace(FAILURE, exit_code=137, reason="OOMKilled"), Cause.OUT_OF_MEMORY, ""),
        (replace(FAILURE, message="Evicted: The node was low on resource: memory."), Cause.EVICTED, ""),
        (replace(FAILURE, message="PreemptionByScheduler: made room"), Cause.PREEMPTED, ""),
        (replace(FAILURE, message="DeletionByTaintManager: the node is gone"), Cause.NODE_LOST, ""),
        (
            replace(FAILURE, container="dataset-initializer", rank=None, replicated_job="dataset-initializer"),
            Cause.INIT_CONTAINER_FAILED,
            "error",
        ),
    ],
)
def test_the_condition_of_a_container_that_failed_tells_the_cause(
    failure: ContainerFailure, cause: Cause, kind: str
) -> None:
    """As the manager words it, which is all that is left of it after a restart."""
    told = FirstFailures()
    told.note([failure], {})
    assert told.condition is not None
    assert failure_of(holding(condition("Failed", "FailedJobs"), told.condition)) == (cause, kind)
    assert failure_of(holding(told.condition)) == (cause, kind)


def test_what_a_job_was_failed_for_comes_before_what_its_containers_did() -> None:
    container = condition("ContainerFailed", "Error", message="attempt 0: rank 0 failed with exit code 1")

    def failure(reason: str, *others: JsonObject) -> Failure | None:
        return failure_of(holding(condition("Failed", reason), *others))

    assert failure("DeadlineExceeded", container) == (Cause.DEADLINE_EXCEEDED, "")
    assert failure("TrainingRuntimeNotSupported") == (Cause.RUNTIME_MISSING, "")
    assert failure("ReachedMaxRestarts", container) == (Cause.CONTAINER_FAILED, "error")
    assert failure("ReachedMaxRestarts") == (Cause.BACKOFF_LIMIT_EXCEEDED, "")
    assert failure("FailedJobs") == (Cause.UNKNOWN, "")
    assert failure_of(holding({"type": "Failed"}, {"type": "ContainerFailed"})) == (Cause.CONTAINER_FAILED, "")


def test_what_keeps_a_job_from_running_is_no_failure() -> None:
    assert failure_of(holding(condition("Waiting", "Unschedulable"), condition("Suspended", "Suspended"))) is None
    container = condition("ContainerFailed", "Evicted")
    assert failure_of(holding(condition("Waiting", "Unschedulable"), container)) == (Cause.EVICTED, "")


def test_every_exit_code_has_a_class() -> None:
    assert {exit_class(code) for code in range(1, 256)} | {""} == set(EXIT_CLASSES)
