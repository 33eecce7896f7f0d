"""The line of a pod in `kubectl get pods`, as the API server words it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trainmaster.devcluster.apiserver.registry import pod_summary
from trainmaster.runtime.jsontree import JsonObject

NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
RUNNING: JsonObject = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
COMPLETED: JsonObject = {"terminated": {"exitCode": 0, "reason": "Completed"}}
FAILED: JsonObject = {"terminated": {"exitCode": 3, "reason": "Error"}}


def waiting(reason: str) -> JsonObject:
    return {"waiting": {"reason": reason}}


def container(name: str, state: JsonObject, *, ready: bool = False, restarts: int = 0, last: str = "") -> JsonObject:
    shown = {"name": name, "state": state, "ready": ready, "restartCount": restarts, "started": "running" in state}
    return {**shown, "lastState": {"terminated": {"finishedAt": last}} if last else {}}


def pod(
    *main: JsonObject, init: tuple[JsonObject, ...] = (), sidecars: tuple[str, ...] = (), phase: str = "Running"
) -> JsonObject:
    spec = {
        "initContainers": [
            {"name": each["name"], **({"restartPolicy": "Always"} if each["name"] in sidecars else {})} for each in init
        ],
        "containers": [{"name": each["name"]} for each in main],
    }
    status = {"phase": phase, "initContainerStatuses": list(init), "containerStatuses": list(main)}
    return {"metadata": {"name": "p"}, "spec": spec, "status": status}


def shown(obj: JsonObject) -> tuple[str, str, str]:
    return pod_summary.readiness(obj), pod_summary.state(obj), pod_summary.restarts(obj, NOW)


WAITS = container("main", waiting("PodInitializing"))


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pod(container("a", waiting("ContainerCreating")), phase="Pending"), ("0/1", "ContainerCreating", "0")),
        (pod(container("a", RUNNING, ready=True)), ("1/1", "Running", "0")),
        (pod(container("a", RUNNING)), ("0/1", "Running", "0")),
        (pod(container("a", COMPLETED), phase="Succeeded"), ("0/1", "Completed", "0")),
        (pod(container("a", FAILED), phase="Failed"), ("0/1", "Error", "0")),
        (pod(container("a", {"terminated": {"exitCode": 3}}), phase="Failed"), ("0/1", "ExitCode:3", "0")),
        (pod(container("a", {"terminated": {"exitCode": 137, "signal": 9}})), ("0/1", "Signal:9", "0")),
        (pod(container("a", COMPLETED), container("b", RUNNING, ready=True)), ("1/2", "NotReady", "0")),
        (
            pod(container("a", waiting("CrashLoopBackOff"), restarts=2, last="2026-01-01T00:09:30Z")),
            ("0/1", "CrashLoopBackOff", "2 (30s ago)"),
        ),
        # Of several the first one counts, for it is looked at last.
        (pod(container("a", waiting("CrashLoopBackOff")), container("b", FAILED)), ("0/2", "CrashLoopBackOff", "0")),
        (pod(WAITS, init=(container("i", waiting("PodInitializing")),)), ("0/1", "Init:0/1", "0")),
        (pod(WAITS, init=(container("i", RUNNING),)), ("0/1", "Init:0/1", "0")),
        (pod(WAITS, init=(container("i", COMPLETED), container("j", RUNNING))), ("0/1", "Init:1/2", "0")),
        (pod(WAITS, init=(container("i", COMPLETED, ready=True),)), ("0/1", "PodInitializing", "0")),
        (pod(WAITS, init=(container("i", FAILED),)), ("0/1", "Init:Error", "0")),
        (
            pod(WAITS, init=(container("i", {"terminated": {"exitCode": 9, "signal": 9}}),)),
            ("0/1", "Init:Signal:9", "0"),
        ),
        (
            pod(WAITS, init=(container("i", waiting("CrashLoopBackOff"), restarts=4, last="2026-01-01T00:09:00Z"),)),
            ("0/1", "Init:CrashLoopBackOff", "4 (60s ago)"),
        ),
        (
            pod(container("a", RUNNING, ready=True, restarts=1), init=(container("i", COMPLETED, restarts=4),)),
            ("1/1", "Running", "1"),
        ),
        (
            pod(
                container("a", RUNNING, ready=True),
                init=(container("s", RUNNING, ready=True, restarts=2),),
                sidecars=("s",),
            ),
            ("2/2", "Running", "2"),
        ),
        (pod(WAITS, init=(container("s", waiting("PodInitializing")),), sidecars=("s",)), ("0/2", "Init:0/1", "0")),
    ],
)
def test_a_pod_in_a_line(obj: JsonObject, expected: tuple[str, str, str]) -> None:
    assert shown(obj) == expected


def test_what_is_said_of_the_pod_itself() -> None:
    evicted = pod(phase="Failed")
    evicted["status"]["reason"] = "Evicted"
    assert pod_summary.state(evicted) == "Evicted"
    gated = pod(phase="Pending")
    gated["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    assert pod_summary.state(gated) == "SchedulingGated"
    beside = pod(container("a", COMPLETED), container("b", RUNNING, ready=True))
    beside["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert pod_summary.state(beside) == "Running"


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [
        ("Running", "", "Terminating"),
        ("Pending", "", "Terminating"),
        ("Succeeded", "", "Completed"),
        ("Running", "NodeLost", "Unknown"),
    ],
)
def test_a_pod_that_is_being_deleted(phase: str, reason: str, expected: str) -> None:
    """One that has ended already waits for a finalizer: it says how it ended."""
    obj = pod(container("a", COMPLETED), phase=phase)
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    obj["status"]["reason"] = reason
    assert pod_summary.state(obj) == expected
