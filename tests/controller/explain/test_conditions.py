"""The cause that conditions tell of, in the words of those who write them."""

from __future__ import annotations

import pytest

from trainmaster.controller.explain.conditions import cause_of
from trainmaster.runtime.jsontree import JsonObject


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
