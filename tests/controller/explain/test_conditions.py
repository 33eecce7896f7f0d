"""The cause that conditions tell of, in the words of those who write them."""

from __future__ import annotations

import pytest

from trainmaster.controller.explain.conditions import cause_of
from trainmaster.runtime.jsontree import JsonObject


def condition(name: str, *, reason: str = "", message: str = "") -> JsonObject:
    return {"type": name, "status": "True", "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("conditions", "cause"),
    [
        ([condition("Failed", reason="DeadlineExceeded", message="exceeded")], "DeadlineExceeded"),
        ([condition("Failed", reason="TrainingRuntimeNotSupported")], "RuntimeMissing"),
        ([condition("Failed", reason="FailedJobs", message="jobset failed")], "Unknown"),
        ([condition("Failed", message="rank 0 failed with exit code 1")], "ContainerFailed"),
        ([condition("Failed", message="(Evicted: The node was low on resource: memory)")], "Evicted"),
        ([condition("Failed", message="(PreemptionByScheduler: preempting)")], "Preempted"),
        ([condition("Blocked", reason="RuntimeNotFound")], "RuntimeMissing"),
        ([condition("Blocked", reason="PluginFailed")], "PluginFailed"),
        ([condition("Blocked", reason="NameTaken")], "Unknown"),
        ([condition("ContainerFailed", reason="Error", message="attempt 0: rank 0")], "ContainerFailed"),
        ([condition("ContainerFailed", reason="OutOfMemory", message="attempt 0: rank 0")], "OutOfMemory"),
        (
            [condition("Failed", message="exit code 1"), condition("ContainerFailed", reason="NodeLost")],
            "NodeLost",
        ),
        ([condition("Failed", reason="ReachedMaxRestarts", message="jobset failed")], "BackoffLimitExceeded"),
        (
            [
                condition(
                    "Failed", reason="ReachedMaxRestarts", message="attempt 0: (OOMKilled); attempt 1: exit code 1"
                ),
                condition("ContainerFailed", reason="ContainerFailed", message="attempt 0: (OOMKilled)\nattempt 1"),
            ],
            "ContainerFailed",
        ),
        (
            [condition("ContainerFailed", reason="Evicted"), condition("Waiting", reason="Unschedulable")],
            "Unschedulable",
        ),
        ([condition("Waiting", reason="Unschedulable")], "Unschedulable"),
        ([condition("Waiting", reason="Weather")], "Unknown"),
        ([condition("Suspended")], "Suspended"),
        ([], None),
    ],
)
def test_the_cause_is_what_the_conditions_tell(conditions: list[JsonObject], cause: str | None) -> None:
    assert cause_of({each["type"]: each for each in conditions}) == cause
