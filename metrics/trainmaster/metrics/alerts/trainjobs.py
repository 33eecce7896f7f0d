"""Alerts about the jobs: many that fail, wait or begin anew, which is seldom the fault of each of them."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import statusserver, trainjobs
from trainmaster.metrics.alerts.model import QUERIES, Alert
from trainmaster.metrics.jobs import COUNTERS
from trainmaster.metrics.promql import aggregate, unlike

_HOUR: Final = QUERIES.within("1h")

_ENDED: Final = _HOUR.count(trainjobs.TIME_TO_END)
_FAILED: Final = _HOUR.count(trainjobs.TIME_TO_END, result="Failed")
_V1_FAILED: Final = _HOUR.count(COUNTERS["failed"], "framework")
_V1_SUCCESSFUL: Final = _HOUR.count(COUNTERS["successful"], "framework")

_OF_THE_PROGRAM: Final = (
    "ContainerFailed|OutOfMemory|DeadlineExceeded|BackoffLimitExceeded|Refused|RuntimeMissing|WorldSizeMismatch|Unknown"
)
"""Causes that are the matter of each job's owner, as a rule."""

_RUNNING: Final = aggregate("sum", QUERIES.series(trainjobs.TRAINJOBS, state="Running"))

TRAINJOBS: Final = (
    Alert(
        name="TrainmasterTrainJobsFail",
        severity="warning",
        duration="5m",
        expression=(_FAILED / _ENDED > 0.5) & (_ENDED > 10),
        summary="More than half of the TrainJobs that ended within an hour have failed.",
        description="So many at once are seldom the fault of their programs. The dashboard TrainJobs shows the causes, "
        "`trainmaster explain` of one of them the evidence.",
    ),
    Alert(
        name="TrainmasterTrainJobsFailAlike",
        severity="warning",
        duration="0m",
        expression=_HOUR.count(trainjobs.FAILURES, "cause", cause=unlike(_OF_THE_PROGRAM)) > 5,
        summary="Several TrainJobs have failed within an hour by the same cause: {{ $labels.cause }}.",
        description="The cause is of the cluster rather than of their programs. `trainmaster explain` of one of them "
        "has the evidence, and what to do.",
    ),
    Alert(
        name="TrainmasterTrainJobsRestart",
        severity="warning",
        duration="0m",
        expression=_HOUR.count(trainjobs.RESTARTS, "cause") > 20,
        summary="TrainJobs were restarted more than twenty times within an hour by {{ $labels.cause }}.",
        description="Each restart costs what was done since the last checkpoint, and the jobs fail when their limit is "
        "reached.",
    ),
    Alert(
        name="TrainmasterTrainJobsDoNotStart",
        severity="warning",
        duration="5m",
        expression=(_HOUR.lowest_sum(trainjobs.TRAINJOBS, state="Waiting") > 0)
        & (_HOUR.count(trainjobs.TIME_TO_RUNNING).or_zero() < 1),
        summary="TrainJobs have been waiting for an hour, and none has started.",
        description="There is no room, or something keeps all of them from starting. `trainmaster explain` of one of "
        "them says what.",
    ),
    Alert(
        name="TrainmasterTrainJobsWaitLong",
        severity="warning",
        duration="30m",
        expression=_HOUR.quantile_of_few(0.9, trainjobs.TIME_TO_RUNNING, "runtime") > 1800,
        summary="A tenth of the TrainJobs of {{ $labels.runtime }} waits for more than half an hour to run.",
        description="There is too little room for what is asked for, or images take long. The dashboard TrainJobs "
        "shows what of it is the manager's.",
    ),
    Alert(
        name="TrainmasterJobSetsLate",
        severity="warning",
        duration="10m",
        expression=QUERIES.quantile(0.99, trainjobs.TIME_TO_JOBSET) > 60,
        summary="The manager takes more than a minute until a new TrainJob has its JobSet.",
        description="It does not keep up, or something blocks the TrainJobs: their conditions say what.",
    ),
    Alert(
        name="TrainmasterNoProgress",
        severity="warning",
        duration="30m",
        expression=(QUERIES.within("30m").increase(statusserver.REPORTS, code="200") < 1)
        & (QUERIES.within("6h").increase(statusserver.REPORTS, code="200") > 0)
        & (_RUNNING > 0),
        summary="TrainJobs run, and none of them reports progress any more.",
        description="Trainers have reported within the last hours. Either all of them hang, or their reports do not "
        "arrive: look at the log of one, and at the Service and NetworkPolicies of the status server.",
    ),
    Alert(
        name="TrainmasterV1JobsFail",
        severity="warning",
        duration="5m",
        expression=(_V1_FAILED > 10).unless(_V1_SUCCESSFUL > _V1_FAILED),
        summary="More than half of the jobs of {{ $labels.framework }} that ended within an hour have failed.",
        description="So many at once are seldom the fault of their programs. `kubectl describe` of some of them has "
        "the reason in the condition Failed.",
    ),
)
