"""The gauge of jobs of `kubeflow.org/v1` by state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.jobworld import pytorchjob, replicas
from support.series import series

from trainmaster.controller.job_metrics.jobs_by_state import STATES, JobStates
from trainmaster.controller.kube.cache.store import Store
from trainmaster.runtime.jsontree import JsonObject


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
