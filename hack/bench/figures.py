"""What is measured: each figure with its unit, how it may vary, and its budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

FULL_SCALE: Final = 10_000
"""TrainJobs for which the budgets of memory, stalls and starts are meant."""

PODS_EACH: Final = 4
"""Of a PyTorchJob of the benchmark; it has as many Services."""


class Kind(Enum):
    """How a figure varies between runs and machines; the value is the factor that a comparison allows."""

    DURATION = 2.0
    RATE = 0.5
    MEMORY = 1.25
    COUNT = 1.0


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a figure may be."""

    at_most: float
    at_jobs: int = 0
    """It says nothing about runs with fewer TrainJobs."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure that can be measured."""

    unit: str
    kind: Kind
    text: str
    budget: Budget | None = None


FIGURES: Final[Mapping[str, Figure]] = MappingProxyType(
    {
        "start.ready": Figure("s", Kind.DURATION, "a manager in an empty cluster, from its start to ready"),
        "start.memory": Figure("MB", Kind.MEMORY, "resident memory of that manager when it is ready"),
        "create.rate": Figure("JobSets/s", Kind.RATE, "with the server and this program on the same machine"),
        "create.latency_p50": Figure("s", Kind.DURATION, "TrainJob to JobSet, as a client sees it: median"),
        "create.latency_p99": Figure("s", Kind.DURATION, "TrainJob to JobSet, 99th percentile"),
        "create.cpu": Figure("ms/job", Kind.DURATION, "CPU of the manager, until the status is written"),
        "create.requests": Figure(
            "per job", Kind.COUNT, "requests of the manager but lists, watches, leases, events", Budget(2.0)
        ),
        "create.events": Figure("per job", Kind.COUNT, "events, each a request"),
        "settled.cpu": Figure("ms/job", Kind.DURATION, "CPU of the manager to look again at what is as it should be"),
        "settled.writes": Figure("", Kind.COUNT, "all jobs looked at again", Budget(0.0)),
        "waiting.cpu": Figure("ms/job", Kind.DURATION, "CPU of the manager until it is told why a job waits"),
        "waiting.lists": Figure("per job", Kind.COUNT, "lists of pods until then"),
        "waiting.writes": Figure("per job", Kind.COUNT, "writes until then"),
        "restart.ready": Figure(
            "s",
            Kind.DURATION,
            "a manager that finds all jobs, from its start to ready",
            Budget(10.0, at_jobs=FULL_SCALE),
        ),
        "restart.cpu": Figure("ms/job", Kind.DURATION, "CPU of that manager until it rests"),
        "restart.writes": Figure("", Kind.COUNT, "of that manager until it rests", Budget(0.0)),
        "life.requests": Figure("per job", Kind.COUNT, "from creation to completion", Budget(4.0)),
        "life.events": Figure("per job", Kind.COUNT, "events, each a request"),
        "life.cpu": Figure("ms/job", Kind.DURATION, "CPU of the manager, from creation to completion"),
        "manager.lists": Figure("", Kind.COUNT, "list requests after the start", Budget(0.0)),
        "manager.peak_memory": Figure(
            "MB", Kind.MEMORY, "highest resident memory (VmHWM)", Budget(200.0, at_jobs=FULL_SCALE)
        ),
        "manager.worst_stall": Figure(
            "ms", Kind.DURATION, "longest time without a turn of the event loop", Budget(100.0, at_jobs=FULL_SCALE)
        ),
        "manager.series": Figure("", Kind.MEMORY, "series in its metrics", Budget(5000.0)),
        "manager.cached": Figure("MB", Kind.MEMORY, "objects in its caches, as they were read"),
        "pytorchjob.start.ready": Figure("s", Kind.DURATION, "as start.ready, where V1 jobs are served as well"),
        "pytorchjob.start.memory": Figure("MB", Kind.MEMORY, "as start.memory"),
        "pytorchjob.create.rate": Figure("pods/s", Kind.RATE, "with the server and this program on the same machine"),
        "pytorchjob.create.latency_p50": Figure("s", Kind.DURATION, "PyTorchJob to pod, as a client sees it: median"),
        "pytorchjob.create.latency_p99": Figure("s", Kind.DURATION, "PyTorchJob to pod, 99th percentile"),
        "pytorchjob.create.cpu": Figure("ms/pod", Kind.DURATION, "CPU of the manager, until the status is written"),
        "pytorchjob.create.requests": Figure("per job", Kind.COUNT, "as create.requests"),
        "pytorchjob.create.events": Figure("per job", Kind.COUNT, "events, each a request"),
        "pytorchjob.settled.cpu": Figure("ms/job", Kind.DURATION, "CPU to look again at what is as it should be"),
        "pytorchjob.settled.writes": Figure("", Kind.COUNT, "all jobs looked at again", Budget(0.0)),
        "pytorchjob.restart.ready": Figure(
            "s", Kind.DURATION, "a manager that finds all jobs, from its start to ready"
        ),
        "pytorchjob.restart.cpu": Figure("ms/job", Kind.DURATION, "CPU of that manager until it rests"),
        "pytorchjob.restart.writes": Figure("", Kind.COUNT, "of that manager until it rests", Budget(0.0)),
        "pytorchjob.life.requests": Figure(
            "per job", Kind.COUNT, "from creation to completion: pods, services and 3", Budget(2 * PODS_EACH + 3.0)
        ),
        "pytorchjob.life.events": Figure("per job", Kind.COUNT, "events from creation to completion"),
        "pytorchjob.life.cpu": Figure("ms/pod", Kind.DURATION, "CPU of the manager, from creation to completion"),
        "pytorchjob.manager.lists": Figure(
            "", Kind.COUNT, "list requests after the start: to whom the webhooks lead", Budget(1.0)
        ),
        "pytorchjob.manager.peak_memory": Figure("MB", Kind.MEMORY, "highest resident memory (VmHWM)"),
        "pytorchjob.manager.worst_stall": Figure("ms", Kind.DURATION, "longest time without a turn of the event loop"),
        "pytorchjob.manager.series": Figure("", Kind.MEMORY, "series in its metrics", Budget(5000.0)),
        "pytorchjob.manager.cached": Figure("MB", Kind.MEMORY, "objects in its caches, as they were read"),
    }
)
"""All figures in the order of the report."""


def verdict(name: str, value: float, *, jobs: int) -> bool | None:
    """Tell whether a figure keeps its budget; None if it has none, or none at this scale."""
    budget = FIGURES[name].budget
    if budget is None or jobs < budget.at_jobs:
        return None
    return value <= budget.at_most


def regressed(name: str, value: float, reference: float) -> float | None:
    """Return the bound that a figure breaks towards that of a reference run, or None if it is within its range."""
    kind = FIGURES[name].kind
    bound = reference * kind.value
    holds = value >= bound if kind is Kind.RATE else value <= bound
    return None if holds else bound
