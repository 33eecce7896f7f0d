"""How urgent each change is."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from trainmaster.controller.kube.cache.delta import Delta, Record
from trainmaster.controller.kube.workqueue.queue import CHANGE_PRIORITY, LOW_PRIORITY
from trainmaster.controller.reconciling.priorities import priority_of_other, priority_of_own, priority_of_owned


def record(**metadata: Any) -> Record:
    return "uid", "1", orjson.dumps({"metadata": {"name": "a", "uid": "uid", "generation": 1, **metadata}}), b""


PLAIN = record()


@pytest.mark.guarantee("W-19")
@pytest.mark.parametrize(
    ("change", "of_the_job", "of_its_workload"),
    [
        (Delta("ns/a", None, PLAIN), 0, 0),
        (Delta("ns/a", PLAIN, record(labels={"a": "b"})), 0, CHANGE_PRIORITY),
        (Delta("ns/a", PLAIN, record(generation=2)), CHANGE_PRIORITY, CHANGE_PRIORITY),
        (Delta("ns/a", PLAIN, record(deletionTimestamp="2026-01-01T00:00:00Z")), CHANGE_PRIORITY, CHANGE_PRIORITY),
        (Delta("ns/a", PLAIN, record(uid="other")), CHANGE_PRIORITY, CHANGE_PRIORITY),
        (Delta("ns/a", PLAIN, None), CHANGE_PRIORITY, CHANGE_PRIORITY),
    ],
    ids=["added", "status or labels", "spec", "being deleted", "replaced", "gone"],
)
def test_what_somebody_waits_for_comes_before_what_is_new(change: Delta, of_the_job: int, of_its_workload: int) -> None:
    assert priority_of_own(change) == of_the_job
    assert priority_of_owned(change) == of_its_workload
    assert priority_of_other(change) == 0, "it may concern thousands"


@pytest.mark.guarantee("W-22")
@pytest.mark.parametrize("flag", ["initial", "resync"])
def test_what_is_not_new_can_wait(flag: str) -> None:
    change = Delta("ns/a", None if flag == "initial" else PLAIN, PLAIN)
    setattr(change, flag, True)
    assert priority_of_own(change) == priority_of_owned(change) == priority_of_other(change) == LOW_PRIORITY
