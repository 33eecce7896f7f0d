"""Jobs of `kubeflow.org/v1`, by the metrics of the Training Operator V1."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import controller
from trainmaster.metrics.dashboards.model import (
    OF_STATES,
    QUERIES,
    Dashboard,
    Panel,
    Query,
    Row,
    Variable,
    quantiles,
    rates,
    waiting_keys,
)
from trainmaster.metrics.jobs import COUNTERS, JOBS
from trainmaster.metrics.promql import Expression, Queries, like, top

_CHOSEN: Final = {"job_namespace": like("$job_namespace"), "framework": like("$framework")}
_CONTROLLERS: Final = {"controller": like(".+job-controller")}
_HOUR: Final = QUERIES.within("1h")
_NONE_YET: Final = "no job of kubeflow.org/v1 has come so far"

_JOBS: Final = Row(
    "Jobs",
    (
        Panel(
            title="Created, last hour", kind="stat", width=6, height=4,
            description="Jobs that the manager saw for the first time within the last hour.",
            queries=(Query(_HOUR.count(COUNTERS["created"], **_CHOSEN).or_zero(), "created"),),
        ),
        Panel(
            title="Succeeded, last hour", kind="stat", width=6, height=4,
            description="Jobs that came to a good end within the last hour.",
            queries=(Query(_HOUR.count(COUNTERS["successful"], **_CHOSEN).or_zero(), "succeeded"),),
        ),
        Panel(
            title="Failed, last hour", kind="stat", width=6, height=4, steps=((1, "orange"),),
            description="Jobs that failed within the last hour. `kubectl describe` of each has the condition Failed "
            "with the reason.",
            queries=(Query(_HOUR.count(COUNTERS["failed"], **_CHOSEN).or_zero(), "failed"),),
        ),
        Panel(
            title="Restarts, last hour", kind="stat", width=6, height=4, steps=((1, "orange"),),
            description="Times that failed pods of a job were replaced within the last hour.",
            queries=(Query(_HOUR.count(COUNTERS["restarted"], **_CHOSEN).or_zero(), "restarts"),),
        ),
        Panel(
            title="Jobs by state", is_stacked=True, colors=OF_STATES, may_be_empty=_NONE_YET,
            description="All that are there, by framework below. If those that wait grow while those that run do not, "
            "there is no room.",
            queries=(Query(QUERIES.total(JOBS, "state", framework=like("$framework")), "{{state}}"),),
        ),
        Panel(
            title="Running and waiting by framework", may_be_empty=_NONE_YET,
            description="Which kind of jobs holds the nodes, and which kind waits for them.",
            queries=(
                Query(
                    QUERIES.total(
                        JOBS, "framework", "state", framework=like("$framework"), state=like("Running|Waiting")
                    ),
                    "{{framework}} {{state}}",
                ),
            ),
        ),
        Panel(
            title="Jobs created a second", unit="ops", may_be_empty=_NONE_YET,
            description="What users submit, by framework. A burst of one namespace may keep all others "
            "waiting: see the queues below.",
            queries=rates(COUNTERS["created"], "framework", **_CHOSEN),
        ),
        Panel(
            title="Jobs that ended, a second", unit="ops", width=12, may_be_empty=_NONE_YET,
            description="By framework and how they ended. Less than are created: they run longer, or wait for nodes.",
            queries=(
                Query(QUERIES.rate(COUNTERS["successful"], "framework", **_CHOSEN), "{{framework}} succeeded"),
                Query(QUERIES.rate(COUNTERS["failed"], "framework", **_CHOSEN), "{{framework}} failed"),
            ),
        ),
        Panel(
            title="Restarts a second", unit="ops", width=12, may_be_empty=_NONE_YET,
            description="Failed pods that were replaced, by framework. Many of one framework at once tell of nodes or "
            "of an image, not of one program.",
            queries=rates(COUNTERS["restarted"], "framework", **_CHOSEN),
        ),
        Panel(
            title="Namespaces with most failures, last hour", width=12, may_be_empty=_NONE_YET,
            description="Whom to ask first when many jobs fail: a namespace has images, quotas and volumes of "
            "its own.",
            queries=(
                Query(top(5, _HOUR.count(COUNTERS["failed"], "job_namespace", **_CHOSEN)), "{{job_namespace}}"),
            ),
        ),
        Panel(
            title="Deleted by their time to live, a second", unit="ops", width=12, may_be_empty=_NONE_YET,
            description="Jobs that had ended and were removed, as ttlSecondsAfterFinished asks for.",
            queries=rates(COUNTERS["deleted"], "framework", **_CHOSEN),
        ),
    ),
)  # fmt: skip

_CONTROLLERS_ROW: Final = Row(
    "Controllers",
    (
        Panel(
            title="Reconciles a second", unit="ops", may_be_empty="no kind of kubeflow.org/v1 is served",
            description="By controller and result; there is a controller for each kind that the API server serves.",
            queries=rates(controller.RECONCILES, "controller", "result", **_CONTROLLERS),
        ),
        Panel(
            title="Reconcile time", unit="s", may_be_empty="no kind of kubeflow.org/v1 is served",
            description="Pods of a job are created within it, side by side: large jobs take longer.",
            queries=quantiles(controller.DURATION, "controller", **_CONTROLLERS),
        ),
        Panel(
            title="Keys in queues", may_be_empty="no kind of kubeflow.org/v1 is served",
            description="Jobs that wait for a worker. If it stays up, the API server is slow, or CPU is short; or "
            "controller.groupKindConcurrency says that too few of the kind run at once.",
            queries=(Query(waiting_keys(**_CONTROLLERS), "{{controller}}"),),
        ),
    ),
)  # fmt: skip


def _counted(target: str) -> Expression:
    """Return the series of the counter, with whatever labels, to read these."""
    return Queries(target=target, window="").values(COUNTERS["created"])


V1_JOBS: Final = Dashboard(
    uid="trainmaster-v1-jobs",
    title="Trainmaster / Jobs of kubeflow.org/v1",
    description="PyTorchJobs, TFJobs, MPIJobs and the others: how many come, end, fail and are restarted.",
    rows=(_JOBS, _CONTROLLERS_ROW),
    variables=(
        Variable(name="job_namespace", label="Namespace of jobs", values=_counted(QUERIES.target)),
        Variable(name="framework", label="Framework", values=_counted(QUERIES.target)),
    ),
)
