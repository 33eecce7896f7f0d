"""The first page: whether all is well, for users and for the manager, and where to look on."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import certificates, controller, process, queue, rest_client, statusserver, trainjobs, webhook
from trainmaster.metrics.dashboards.model import (
    OF_STATES,
    QUERIES,
    Dashboard,
    Panel,
    Query,
    Row,
    rates,
    waiting_keys,
)
from trainmaster.metrics.promql import CPU, MEMORY, UP, Expression, aggregate, like

_HOUR: Final = QUERIES.within("1h")


def _jobs(*states: str) -> Expression:
    return aggregate("sum", QUERIES.series(trainjobs.TRAINJOBS, state=like("|".join(states)))).or_zero()


_HEALTH: Final = Row(
    "Is all well?",
    (
        Panel(
            title="Leaders", kind="stat", width=3, height=4, base="red", steps=((1, "green"), (2, "red")),
            description="There has to be one. None: nothing is started nor followed; see the pods of the manager. Two "
            "for more than a moment: they use different leases.",
            queries=(Query(QUERIES.total(controller.MASTER_STATUS).or_zero(), "leaders"),),
        ),
        Panel(
            title="Managers", kind="stat", width=3, height=4, base="red", steps=((1, "green"),),
            description="Pods that Prometheus reaches. All of them answer webhooks, one leads.",
            queries=(Query(QUERIES.total(UP).or_zero(), "up"),),
        ),
        Panel(
            title="Running", kind="stat", width=3, height=4, base="blue",
            description="TrainJobs that have started and have not ended.",
            queries=(Query(_jobs("Running"), "running"),),
        ),
        Panel(
            title="Waiting", kind="stat", width=3, height=4, base="blue",
            description="TrainJobs that have not started, or are suspended. The dashboard TrainJobs has reasons.",
            queries=(Query(_jobs("Waiting", "Suspended"), "waiting"),),
        ),
        Panel(
            title="Failed, last hour", kind="stat", width=3, height=4, steps=((1, "orange"),),
            description="TrainJobs that failed within the last hour. The dashboard TrainJobs has the causes.",
            queries=(Query(_HOUR.count(trainjobs.FAILURES).or_zero(), "failed"),),
        ),
        Panel(
            title="Failed reconciles", kind="stat", width=3, height=4, unit="percentunit",
            steps=((0.01, "yellow"), (0.1, "red")),
            description="Which part of the reconciles fails. They are tried again; the log names objects and errors.",
            queries=(
                Query(
                    (QUERIES.rate(controller.ERRORS) / (QUERIES.rate(controller.RECONCILES) > 0)).or_zero(), "failed"
                ),
            ),
        ),
        Panel(
            title="Wait for a worker, p99", kind="stat", width=3, height=4, unit="s",
            steps=((1, "yellow"), (60, "red")),
            description="How long changed objects wait before the manager looks at them. If it stays above a second, "
            "see the dashboard Controller.",
            queries=(Query(QUERIES.quantile(0.99, queue.QUEUE_DURATION).observed().or_zero(), "wait"),),
        ),
        Panel(
            title="Certificate ends in", kind="stat", width=3, height=4, unit="s", base="red",
            steps=((7 * 86400, "yellow"), (14 * 86400, "green")),
            description="The first of them. They are renewed long before; below a week somebody has to look.",
            queries=(Query(aggregate("min", (QUERIES.series(certificates.EXPIRY) > 0).until()), "left"),),
            may_be_empty="the manager serves without TLS",
        ),
    ),
)  # fmt: skip

_JOBS: Final = Row(
    "TrainJobs",
    (
        Panel(
            title="TrainJobs by state", is_stacked=True, colors=OF_STATES, may_be_empty="there is no TrainJob",
            description="If those that wait grow while those that run do not, there is no room, or something keeps "
            "them from starting.",
            queries=(Query(QUERIES.total(trainjobs.TRAINJOBS, "state"), "{{state}}"),),
        ),
        Panel(
            title="From submission to running pods, last hour", unit="s",
            description="What users wait for: the manager, queues, the scheduler, volumes and images together.",
            queries=(
                Query(_HOUR.quantile_of_few(0.5, trainjobs.TIME_TO_RUNNING).observed(), "p50"),
                Query(_HOUR.quantile_of_few(0.9, trainjobs.TIME_TO_RUNNING).observed(), "p90"),
                Query(_HOUR.quantile_of_few(0.99, trainjobs.TIME_TO_RUNNING).observed(), "p99"),
            ),
        ),
        Panel(
            title="Failures by cause, last hour", is_stacked=True, may_be_empty="no TrainJob has failed so far",
            description="One cause for many jobs at once is seldom the fault of their programs.",
            queries=(Query(_HOUR.count(trainjobs.FAILURES, "cause"), "{{cause}}"),),
        ),
    ),
)  # fmt: skip

_MANAGER: Final = Row(
    "Manager",
    (
        Panel(
            title="Reconciles a second", unit="ops",
            description="What the manager does, by result. Errors are tried again, each time later.",
            queries=rates(controller.RECONCILES, "result"),
        ),
        Panel(
            title="Keys in queues",
            description="Objects that wait for a worker. It may rise in a burst and has to fall again.",
            queries=(Query(waiting_keys(), "{{controller}}"),),
        ),
        Panel(
            title="Leader",
            description="1 for the pod that writes. After a deployment one change is normal.",
            queries=(Query(QUERIES.largest(controller.MASTER_STATUS, "pod"), "{{pod}}"),),
        ),
        Panel(
            title="CPU", steps=((0.9, "yellow"),),
            description="Cores. One is about all that a manager can use.",
            queries=rates(CPU, "pod"),
        ),
        Panel(
            title="Memory", unit="bytes",
            description="Resident memory. It follows the objects in the cluster that the manager reads.",
            queries=(Query(QUERIES.largest(MEMORY, "pod"), "{{pod}}"),),
        ),
        Panel(
            title="Lag of the event loop, p99", unit="s", steps=((0.1, "yellow"), (1, "red")),
            description="How much later than due the manager does things: it lacks CPU, or a plugin blocks it.",
            queries=(Query(QUERIES.quantile(0.99, process.LOOP_LAG, "pod").observed(), "{{pod}}"),),
        ),
    ),
)  # fmt: skip

_AROUND: Final = Row(
    "Around it",
    (
        Panel(
            title="Requests to the API server a second", unit="reqps",
            description="By code. 409 is tried again; 429, 5xx and <error> tell of an API server, or a network, in "
            "trouble.",
            queries=rates(rest_client.REQUESTS, "code"),
        ),
        Panel(
            title="Requests to the API server, p99", unit="s", steps=((1, "yellow"),),
            description="How long the API server takes. While it is slow, so is all that is above.",
            queries=(Query(QUERIES.quantile(0.99, rest_client.REQUEST_DURATION, "verb").observed(), "{{verb}}"),),
        ),
        Panel(
            title="Reviews and reports a second", unit="reqps",
            description="What users submit and what trainers report, by HTTP code. 500 of a webhook: the API server "
            "refuses TrainJobs.",
            queries=(
                Query(QUERIES.rate(webhook.REQUESTS, "code"), "review {{code}}"),
                Query(QUERIES.rate(statusserver.REPORTS, "code"), "report {{code}}"),
            ),
        ),
    ),
)  # fmt: skip

OVERVIEW: Final = Dashboard(
    uid="trainmaster",
    title="Trainmaster / Overview",
    description="Whether all is well, for users and for the manager; the other dashboards go on from here.",
    rows=(_HEALTH, _JOBS, _MANAGER, _AROUND),
)
