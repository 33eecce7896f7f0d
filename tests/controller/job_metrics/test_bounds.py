"""How many series there are at most, the causes of failures, and the gauge of jobs by state."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from support.failing_pods import FAILURE
from support.jobworld import pytorchjob, replicas
from support.objects import trainjob_object
from support.observed_jobs import ObservedJobs, condition, training_job
from support.series import series

from trainmaster.controller.container_failures import ContainerFailure
from trainmaster.controller.diagnosis.first_failures import FirstFailures
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.job_fields import QUEUE_LABEL
from trainmaster.controller.job_metrics.jobs_by_state import STATES, JobStates
from trainmaster.controller.job_metrics.trainjob_facts import EXIT_CLASSES, Failure, exit_class, failure_of
from trainmaster.controller.kube.cache.store import Store
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
        obj["metadata"] |= {"namespace": f"team-{number % 1000}", "labels": {QUEUE_LABEL: f"queue-{number % 300}"}}
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
    assert len(all_series() - before) <= int(documented[1].replace(",", "")) <= 6000
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
        (replace(FAILURE, container="dataset-initializer", rank=None, is_initial=True), Cause.INIT_CONTAINER_FAILED,
         "error"),
    ],
)  # fmt: skip
def test_the_condition_of_a_failed_container_has_the_cause(failure: ContainerFailure, cause: Cause, kind: str) -> None:
    """As the manager words it, which is all that is left of it after a restart."""
    told = FirstFailures()
    told.add([failure], {})
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


class Jobs:
    """A cache of PyTorchJobs, and who follows it."""

    def __init__(self) -> None:
        self.store, self.states = Store(), JobStates("followed")
        self.states.lead()

    def put(self, *conditions: str, name: str = "demo", metadata: JsonObject | None = None, **policy: Any) -> None:
        """Show a job with conditions that hold; those whose names begin with an exclamation mark do not."""
        obj = pytorchjob(worker=replicas(1))
        obj["metadata"] |= {"name": name, "namespace": "team", **(metadata or {})}
        obj["spec"]["runPolicy"] = policy
        obj["status"] = {
            "conditions": [
                {"type": each.lstrip("!"), "status": "False" if each.startswith("!") else "True"} for each in conditions
            ]
        }
        self.states.on_event(self.store.put(obj))

    def counts(self) -> dict[str, float]:
        shown = [each for each in series("trainmaster_v1_jobs") if each.labels["framework"] == "followed"]
        return {each.labels["state"]: each.value for each in shown if each.value}


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    followed = Jobs()
    yield followed
    followed.states.close()


def test_a_job_is_in_the_state_that_its_conditions_tell(jobs: Jobs) -> None:
    lives = [
        ((), "Waiting"),
        (("Created",), "Waiting"),
        (("Created", "Running"), "Running"),
        (("Created", "!Running", "Restarting"), "Restarting"),
        (("Created", "!Running", "Suspended"), "Suspended"),
        (("Created", "Running", "!Suspended"), "Running"),
        (("Created", "!Running", "Succeeded"), "Complete"),
        (("Created", "!Running", "Failed"), "Failed"),
    ]
    for conditions, state in lives:
        jobs.put(*conditions)
        assert jobs.counts() == {state: 1}
    jobs.put("Created", "Running", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert jobs.counts() == {"Terminating": 1}
    assert {state for _, state in lives} | {"Terminating"} == set(STATES)


def test_a_job_that_is_gone_is_not_counted(jobs: Jobs) -> None:
    jobs.put("Running")
    jobs.put("Running", name="other")
    jobs.states.on_event(jobs.store.delete("team/demo"))
    assert jobs.counts() == {"Running": 1}
    for delta in jobs.store.replace([], resource_version="9"):
        jobs.states.on_event(delta)
    assert jobs.counts() == {}


def test_jobs_of_other_controllers_are_not_counted(jobs: Jobs) -> None:
    jobs.put("Running", managedBy="kueue.x-k8s.io/multikueue")
    assert jobs.counts() == {}
    jobs.put("Running", managedBy="kubeflow.org/training-operator")
    assert jobs.counts() == {"Running": 1}
    jobs.put("Running", managedBy="kueue.x-k8s.io/multikueue")
    assert jobs.counts() == {}


def test_replicas_that_stand_by_show_nothing(jobs: Jobs) -> None:
    jobs.put("Running")
    jobs.states.close()
    assert jobs.counts() == {}
    jobs.states.lead()
    assert jobs.counts() == {"Running": 1}


def test_a_job_that_nobody_can_read_waits(jobs: Jobs) -> None:
    for status in ("odd", {"conditions": "odd"}, {"conditions": ["odd"]}, None):
        jobs.put("Running")
        obj = jobs.store.get("team/demo")
        assert obj is not None
        jobs.states.on_event(jobs.store.put({**obj, "status": status, "spec": "odd"}))
        assert jobs.counts() == {"Waiting": 1}
