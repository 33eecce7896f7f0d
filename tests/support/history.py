"""Records of jobs for tests, and stores of them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.history.store import HistoryStore
from trainmaster.runtime.jsontree import JsonObject

NewStore = Callable[[], HistoryStore]
"""Makes another store of the same database, as another process would."""

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(minute: int) -> str:
    """A time at which something happened, so many minutes after eleven."""
    return f"2026-01-31T{11 + minute // 60}:{minute % 60:02}:00Z"


def record(number: int = 0, **fields: Any) -> JobRecord:
    """A job that was created, and ended unless the fields say otherwise."""
    known: dict[str, Any] = {
        "uid": f"uid-{number:04}",
        "api_version": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "namespace": "team-a",
        "name": f"job-{number}",
        "created": at(0),
        "runtime": "torch-distributed",
        "ended": at(number),
        "result": "Succeeded",
    }
    return JobRecord(**known | fields)


def running(number: int = 0, **fields: Any) -> JobRecord:
    """A job that has not ended."""
    return record(number, **{"ended": "", "result": "", **fields})


def trainjob(name: str = "train", *, uid: str = "1-2-3", status: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A TrainJob as the server has it."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "team-a", "uid": uid, "creationTimestamp": at(0)},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
        "status": status or {},
    }


def condition(
    condition_type: str, minute: int, *, status: str = "True", reason: str = "", message: str = ""
) -> JsonObject:
    """A condition of a job."""
    return {
        "type": condition_type,
        "status": status,
        "reason": reason or condition_type,
        "message": message,
        "lastTransitionTime": at(minute),
    }
