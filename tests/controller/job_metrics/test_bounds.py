"""How many series there are at most, and the causes of failures from conditions."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
from support.failing_pods import FAILURE
from support.objects import trainjob_object
from support.observed_jobs import ObservedJobs, condition, training_job

from trainmaster.controller.container_failures import ContainerFailure
from trainmaster.controller.diagnosis.conditions import FirstFailures
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.job_metrics.failure_cause import (
    EXIT_CLASSES,
    Failure,
    exit_class,
    failure_of,
)
from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.trainjobs import MOST_ACCELERATORS, MOST_RUNTIMES, OTHER
from trainmaster.runtime.jsontree import JsonObject

JOBS = 1200
DOCUMENTED = Path(__file__).parents[3] / "docs/metrics.md"
CODES = (1, 126, 127, 134, 137, 139, 143, 250)


def all_series() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name.startswith("trainmaster_trainjob")
    }


@pytest.mark.guarantee("K-16")
def test_jobs_however_many_have_no_more_series_than_the_documentation_says() -> None:
    """Each with a runtime, a namespace, a reason or a device that others do not have, and more of these than limits."""
    jobs, before = ObservedJobs("of-many"), all_series()
    codes = cycle(CODES)
    for number in range(JOBS):
        runtime, name, uid = f"runtime-{number % 300}", f"job-{number}", f"uid-{number}"
        obj = trainjob_object(name, uid=uid, runtimeRef={"name": runtime})
        obj["metadata"]["namespace"] = f"team-{number % 1000}"
        jobs.show_job(obj)
        devices = training_job()
        limits = {"limits": {f"acme-{number % 40}.com/gpu": 1}}
        devices["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = limits
        jobs.put_jobset(name, namespace=f"team-{number % 1000}", owner=uid, replicated_jobs=[devices])
        jobs.put_jobset(
            name, namespace=f"team-{number % 1000}", owner=uid, replicated_jobs=[devices], ready=1, restarts=1
        )
        message = f"attempt 0: rank 0 (pod p, container node) failed with exit code {next(codes)}"
        ended = [
            condition("Complete" if number % 2 else "Failed", f"Reason{number}", at="2026-01-01T01:00:00Z"),
            condition("ContainerFailed", f"Reason{number}", message=message),
            condition("Blocked", f"Reason{number}"),
        ]
        jobs.show_job({**obj, "status": {"conditions": ended[number % 3 :]}})
    assert sum(jobs.metrics.jobs.values()) == JOBS
    runtimes = {runtime for _, _, runtime in jobs.metrics.jobs}
    assert len(runtimes) == MOST_RUNTIMES + 1
    assert OTHER in runtimes
    assert len({resource for _, resource, _ in jobs.metrics.accelerators}) == MOST_ACCELERATORS + 1
    documented = re.search(r"All of them together: ([\d,]+) series", DOCUMENTED.read_text())
    assert documented is not None
    assert len(all_series() - before) <= int(documented[1].replace(",", "")) <= 5000
    assert len(CODES) == len(EXIT_CLASSES) - 1
    jobs.observer.close()


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
