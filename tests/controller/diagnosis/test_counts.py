"""What the counts of a JobSet say: that something failed, and that all is ready."""

import itertools
from typing import Any

import pytest

from trainmaster.controller.diagnosis.counts import Counts, fails, is_ready
from trainmaster.runtime.jsontree import JsonObject


def counts(**jobs: tuple[int, int, int, int]) -> dict[str, Counts]:
    return {name: Counts(*each) for name, each in jobs.items()}


# Active, ready, succeeded, failed: as they follow each other in the status of a JobSet.
HEALTHY = [
    [(0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)],
    [(0, 0, 0, 0), (3, 0, 0, 0), (3, 3, 0, 0), (2, 3, 0, 0), (2, 2, 1, 0), (0, 0, 3, 0)],
    [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)],
]


@pytest.mark.parametrize("life", HEALTHY, ids=["one", "three", "never ready"])
def test_in_a_life_that_ends_well_nothing_fails(life: list[tuple[int, int, int, int]]) -> None:
    steps = [counts(node=each) for each in life]
    assert not any(fails(before, now) for before, now in itertools.pairwise(steps))
    assert not fails({}, steps[0])


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ((1, 1, 0, 0), (1, 0, 0, 0)),
        ((1, 1, 0, 0), (0, 0, 0, 0)),
        ((1, 0, 0, 0), (0, 0, 0, 0)),
        ((1, 0, 0, 0), (0, 0, 0, 1)),
        ((3, 3, 0, 0), (3, 2, 0, 0)),
        ((3, 3, 0, 0), (2, 1, 1, 0)),
    ],
    ids=["restarts", "fails", "never was ready", "failed", "one of three", "one ends and one fails"],
)
def test_what_is_not_ready_any_more_and_has_not_succeeded_fails(before: Any, now: Any) -> None:
    assert fails(counts(node=before), counts(node=now))


def job(name: str, **fields: Any) -> JsonObject:
    return {"name": name, **fields}


READY, ACTIVE, DONE = (1, 1, 0, 0), (1, 0, 0, 0), (0, 0, 1, 0)
INITIALIZED = [job("init"), job("node", dependsOn=[{"name": "init", "status": "Complete"}])]
MPI = [job("node"), job("launcher", dependsOn=[{"name": "node", "status": "Ready"}])]


@pytest.mark.parametrize(
    ("jobs", "now", "ready"),
    [
        ([job("node")], counts(node=READY), True),
        ([job("node")], counts(node=ACTIVE), False),
        ([job("node")], {}, False),
        ([job("node", replicas=2)], counts(node=READY), False),
        ([job("node", replicas=2)], counts(node=(1, 1, 1, 0)), True),
        (INITIALIZED, counts(init=READY, node=(0, 0, 0, 0)), True),
        (INITIALIZED, counts(init=DONE, node=ACTIVE), False),
        (INITIALIZED, counts(init=DONE, node=READY), True),
        (MPI, counts(node=ACTIVE), False),
        (MPI, counts(node=READY), False),
        (MPI, counts(node=READY, launcher=READY), True),
    ],
)
def test_what_has_to_run_by_now_has_to_be_ready(jobs: list[JsonObject], now: dict[str, Counts], ready: bool) -> None:
    assert is_ready({"spec": {"replicatedJobs": jobs}}, now) is ready


def test_what_starts_in_order_waits_for_those_before_it() -> None:
    spec = {"replicatedJobs": [job("a"), job("b"), job("c")], "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    assert not is_ready({"spec": spec}, counts(a=ACTIVE))
    assert not is_ready({"spec": spec}, counts(a=READY, b=ACTIVE))
    assert is_ready({"spec": spec}, counts(a=READY, b=READY, c=READY))
