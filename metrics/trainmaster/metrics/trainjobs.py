"""The families of TrainJobs: how many are in which state, how long they take, why they fail, what they ask for.

Guarantees:
- Only a manager that leads has series of them: replicas that stand by would count each job once more. So sums over all
  pods are right, at any time and after a failover.
- Gauges follow the jobs one by one: a scrape adds up nothing and asks nobody.
- K-16: the number of series is bounded, however many jobs, namespaces, runtimes and nodes there are. No label names a
  job or a namespace: exemplars carry the job, in the format of OpenMetrics.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from trainmaster.metrics.registry import REGISTRY, Children
from trainmaster.metrics.series import Amounts, Counter, Histogram, LeaderGauge

Result: TypeAlias = Literal["Complete", "Failed"]
"""How a TrainJob ended."""

OTHER: Final = "other"
"""The value of a label for all that has no value of its own, because there are too many."""

MOST_RUNTIMES: Final = 15
"""Runtimes that have a value of their own, those of which jobs were built first; the others are `other`."""

MOST_ACCELERATORS: Final = 8
"""Likewise names of resources."""

MOST_QUEUES: Final = 7
"""Likewise queues."""
MOST_NODES: Final = 100
"""Likewise nodes on which jobs have failed."""

_EXEMPLAR_LIMIT: Final = 128
"""Characters of all names and values of an exemplar together, as OpenMetrics demands."""

_START_BUCKETS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14_400, 86_400)
_RUN_BUCKETS: Final = (10, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 259_200, 604_800)

TRAINJOBS: Final = LeaderGauge("trainmaster_trainjobs", "TrainJobs by state", ("state", "reason", "runtime"))
NODES: Final = LeaderGauge(
    "trainmaster_trainjob_nodes",
    "Pods that TrainJobs which have not ended ask for, initializers left out, by what has become of them",
    ("state", "runtime"),
)
ACCELERATORS: Final = LeaderGauge(
    "trainmaster_trainjob_accelerators",
    "Accelerators that pods of TrainJobs which have not ended ask for, by what has become of these",
    ("state", "resource", "runtime"),
)
TIME_TO_JOBSET = Histogram(
    "trainmaster_trainjob_time_to_jobset_seconds", "Time from the creation of a TrainJob to that of its JobSet",
    ("runtime",), buckets=_START_BUCKETS, registry=REGISTRY,
)  # fmt: skip
TIME_TO_RUNNING = Histogram(
    "trainmaster_trainjob_time_to_running_seconds",
    "Time from the creation of a TrainJob until all of its pods were ready for the first time",
    ("runtime",), buckets=_START_BUCKETS, registry=REGISTRY,
)  # fmt: skip
TIME_TO_PROGRESS = Histogram(
    "trainmaster_trainjob_time_to_progress_seconds",
    "Time from the creation of a TrainJob until its first report of progress", ("runtime",),
    buckets=_START_BUCKETS, registry=REGISTRY,
)  # fmt: skip
TIME_TO_END = Histogram(
    "trainmaster_trainjob_time_to_end_seconds", "Time from the creation of a TrainJob to its end, by how it ended",
    ("runtime", "result"), buckets=_RUN_BUCKETS, registry=REGISTRY,
)  # fmt: skip
QUEUE_WAIT = Histogram(
    "trainmaster_trainjob_queue_wait_seconds",
    "Time from the creation of a TrainJob that was created suspended until it was resumed for the first time",
    ("runtime",), buckets=_START_BUCKETS, registry=REGISTRY,
)  # fmt: skip
SUSPENSION = Histogram(
    "trainmaster_trainjob_suspension_seconds",
    "How long a TrainJob was suspended, each time that it was resumed; without the wait before its first start",
    ("runtime",), buckets=_START_BUCKETS, registry=REGISTRY,
)  # fmt: skip
RESTARTS = Counter(
    "trainmaster_trainjob_restarts_total", "Times that the training of a TrainJob was started again, by cause",
    ("cause", "exit_class", "runtime"), registry=REGISTRY,
)  # fmt: skip
FAILURES = Counter(
    "trainmaster_trainjob_failures_total", "TrainJobs that failed, by cause", ("cause", "exit_class", "runtime"),
    registry=REGISTRY,
)  # fmt: skip
SECONDS = Counter(
    "trainmaster_trainjob_seconds_total",
    "What the time of TrainJobs with a resilience policy was spent on, counted at their end",
    ("kind", "runtime", "queue"), registry=REGISTRY,
)  # fmt: skip
NODE_FAILURES = Counter(
    "trainmaster_trainjob_node_failures_total",
    "Failures that were charged to TrainJobs with a resilience policy, by the node of the pod that failed first",
    ("node",), registry=REGISTRY,
)  # fmt: skip

_HISTOGRAMS: Final = {
    each: Children(each)
    for each in (TIME_TO_JOBSET, TIME_TO_RUNNING, TIME_TO_PROGRESS, TIME_TO_END, QUEUE_WAIT, SUSPENSION)
}
_COUNTERS: Final = {each: Children(each) for each in (RESTARTS, FAILURES, SECONDS, NODE_FAILURES)}


class BoundedValues:
    """The values of a label, the first so many that come; what came once stays."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: set[str] = set()

    def admit(self, value: str) -> str:
        """Return the value, or `other` if there are too many."""
        if value in self._values:
            return value
        if len(self._values) >= self._most:
            return OTHER
        self._values.add(value)
        return value

    def find(self, value: str) -> str:
        """Return the value if it was admitted, else `other`."""
        return value if value in self._values else OTHER


class TrainJobsMetrics:
    """The gauges of the TrainJobs of one manager, and the values that their labels may have."""

    def __init__(self) -> None:
        self.runtimes = BoundedValues(MOST_RUNTIMES)
        self.queues = BoundedValues(MOST_QUEUES)
        self._accelerators = BoundedValues(MOST_ACCELERATORS)
        self.jobs, self.nodes, self.accelerators = Amounts(), Amounts(), Amounts()
        """How many there are, with the labels of `TRAINJOBS`, `NODES` and `ACCELERATORS`."""

    def publish(self) -> None:
        """Show the gauges from now on: this manager leads."""
        for gauge, amounts in self._gauges():
            gauge.show(amounts)

    def withdraw(self) -> None:
        """Show the gauges no longer."""
        for gauge, amounts in self._gauges():
            gauge.hide(amounts)

    def count_accelerators(self, by: int, state: str, resource: str, runtime: str) -> None:
        """Count devices in, or out."""
        self.accelerators.add(by, state, self._accelerators.admit(resource), runtime)

    def _gauges(self) -> tuple[tuple[LeaderGauge, Amounts], ...]:
        return (TRAINJOBS, self.jobs), (NODES, self.nodes), (ACCELERATORS, self.accelerators)


def observe(histogram: Histogram, seconds: float, *labels: str, exemplar: dict[str, str]) -> None:
    """Note how long something took, with the job that it was."""
    _HISTOGRAMS[histogram][labels].observe(seconds, exemplar)


def count(counter: Counter, *labels: str, exemplar: dict[str, str], by: int = 1) -> None:
    """Count something, with the job that it was."""
    _COUNTERS[counter][labels].inc(by, exemplar)


_failed_nodes = BoundedValues(MOST_NODES)


def count_node_failure(node: str, *, exemplar: dict[str, str]) -> None:
    """Count a failure that began on a node."""
    count(NODE_FAILURES, _failed_nodes.admit(node), exemplar=exemplar)


def exemplar_of(trainjob: str, trace_id: str = "") -> dict[str, str]:
    """Return the labels of an exemplar; of a name that is too long the end is missing.

    Args:
        trainjob: Its namespace and name, as `namespace/name`.
        trace_id: The trace that tells of it; empty if there is none.
    """
    room = _EXEMPLAR_LIMIT - len("trainjob")
    if not trace_id:
        return {"trainjob": trainjob[:room]}
    return {"trainjob": trainjob[: room - len("trace_id") - len(trace_id)], "trace_id": trace_id}
