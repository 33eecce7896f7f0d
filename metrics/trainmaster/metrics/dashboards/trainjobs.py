"""TrainJobs: what state they are in, how long each step takes them, why they fail, what they ask for."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import trainjobs
from trainmaster.metrics.dashboards.model import (
    OF_STATES,
    QUERIES,
    Dashboard,
    Panel,
    Query,
    Row,
    Variable,
    times,
)
from trainmaster.metrics.promql import Expression, Queries, like, unlike

_CHOSEN: Final = {"runtime": like("$runtime")}
_HOUR: Final = QUERIES.within("1h")
_DAY: Final = QUERIES.within("24h")
_NO_TRAINJOB: Final = "there is no TrainJob"
_NO_END: Final = "no TrainJob has ended so far"
_FAILURES: Final = "no TrainJob has failed so far"
_RESTARTS: Final = "no TrainJob was restarted so far"
_KEPT: Final = _DAY.count(trainjobs.SECONDS, "queue", kind="Productive", **_CHOSEN)
_AFTER_QUEUE: Final = _DAY.count(trainjobs.SECONDS, "queue", kind=unlike("Queued"), **_CHOSEN)


def _now(state: str) -> Expression:
    return QUERIES.total(trainjobs.TRAINJOBS, state=state, **_CHOSEN).or_zero()


def _last_hour(title: str, description: str, expression: Expression, legend: str) -> Panel:
    return Panel(
        title=title, description=description, kind="stat", width=4, height=4,
        queries=(Query(expression.or_zero(), legend),), steps=((1, "orange"),),
    )  # fmt: skip


_NOW: Final = Row(
    "Now",
    (
        Panel(
            title="Running", kind="stat", width=4, height=4, base="blue",
            description="TrainJobs that have started and have not ended.",
            queries=(Query(_now("Running"), "running"),),
        ),
        Panel(
            title="Waiting", kind="stat", width=4, height=4, base="blue",
            description="TrainJobs that were submitted and have not started: those below by reason say for what.",
            queries=(Query(_now("Waiting"), "waiting"),),
        ),
        Panel(
            title="Suspended", kind="stat", width=4, height=4, base="blue",
            description="TrainJobs that somebody has suspended: a user, or a queue that has no room for them yet.",
            queries=(Query(_now("Suspended"), "suspended"),),
        ),
        _last_hour(
            "Failed, last hour",
            "TrainJobs that failed within the last hour. `trainmaster explain` of one says why.",
            _HOUR.count(trainjobs.FAILURES, **_CHOSEN), "failed",
        ),
        _last_hour(
            "Restarts, last hour",
            "TrainJobs that began anew within the last hour. Each costs what was done since the last checkpoint.",
            _HOUR.count(trainjobs.RESTARTS, **_CHOSEN), "restarts",
        ),
        Panel(
            title="Accelerators running", kind="stat", width=4, height=4, base="blue",
            description="Devices that pods of running TrainJobs hold.",
            queries=(
                Query(QUERIES.total(trainjobs.ACCELERATORS, state="Running", **_CHOSEN).or_zero(), "devices"),
            ),
        ),
    ),
)  # fmt: skip

_STATES: Final = Row(
    "States",
    (
        Panel(
            title="TrainJobs by state", is_stacked=True, colors=OF_STATES, may_be_empty=_NO_TRAINJOB,
            description="All that are there. If those that wait grow while those that run do not, there is no room, or "
            "something keeps them from starting: look at the reasons beside.",
            queries=(Query(QUERIES.total(trainjobs.TRAINJOBS, "state", **_CHOSEN), "{{state}}"),),
        ),
        Panel(
            title="States that have a reason", is_stacked=True, may_be_empty="no TrainJob has a reason to tell",
            description="Why TrainJobs wait, are suspended or have failed, in the words of their conditions. "
            "`trainmaster explain` goes on from there for a single one.",
            queries=(
                Query(
                    QUERIES.total(trainjobs.TRAINJOBS, "state", "reason", reason=like(".+"), **_CHOSEN),
                    "{{state}}: {{reason}}",
                ),
            ),
        ),
        Panel(
            title="By runtime", is_stacked=True, may_be_empty=_NO_TRAINJOB,
            description="Who uses the cluster. The first fifteen runtimes have a name, all others are `other`.",
            queries=(Query(QUERIES.total(trainjobs.TRAINJOBS, "runtime", **_CHOSEN), "{{runtime}}"),),
        ),
    ),
)  # fmt: skip

_TIMES: Final = Row(
    "Times from the creation of a TrainJob, of the last hour",
    (
        Panel(
            title="To its JobSet", unit="s", steps=((10, "yellow"),),
            description="What the manager itself takes. More than a few seconds: it does not keep up, see the "
            "dashboard Controller.",
            queries=times(trainjobs.TIME_TO_JOBSET, "runtime", **_CHOSEN),
        ),
        Panel(
            title="To all pods running", unit="s",
            description="Scheduling, volumes and images besides. If it is long for one runtime only, look at the size "
            "of its image; if for all, at free nodes.",
            queries=times(trainjobs.TIME_TO_RUNNING, "runtime", **_CHOSEN),
        ),
        Panel(
            title="To the first report of progress", unit="s", may_be_empty="no trainer reports its progress",
            description="Imports, rendezvous, loading of data and model besides: devices are held and not used "
            "until then.",
            queries=times(trainjobs.TIME_TO_PROGRESS, "runtime", **_CHOSEN),
        ),
        Panel(
            title="To the end", unit="s",
            description="By how they ended. Failures that come late are dear: checkpoints and a deadline limit what "
            "is lost.",
            queries=times(trainjobs.TIME_TO_END, "runtime", "result", **_CHOSEN),
        ),
        Panel(
            title="Wait in queues", unit="s", may_be_empty="no TrainJob was created suspended, as queues do it",
            description="From the creation of a suspended TrainJob until it was resumed for the first time: what "
            "quota costs its users.",
            queries=times(trainjobs.QUEUE_WAIT, "runtime", **_CHOSEN),
        ),
        Panel(
            title="Suspensions", unit="s", may_be_empty="no TrainJob was suspended after its start",
            description="How long TrainJobs that had started were suspended, each time: preemption by a queue, or "
            "users who paused them.",
            queries=times(trainjobs.SUSPENSION, "runtime", **_CHOSEN),
        ),
    ),
)  # fmt: skip

_GOODPUT: Final = Row(
    "What time was spent on, of TrainJobs that ended",
    (
        Panel(
            title="Time by kind, last day", width=12, unit="s", is_stacked=True, may_be_empty=_NO_END,
            description="From the creation of each to its end. Lost is what no checkpoint held when a failure came: "
            "checkpoints that are written more often cost less. Starting and Restarting are scheduling, images and "
            "imports.",
            queries=(Query(_DAY.count(trainjobs.SECONDS, "kind", **_CHOSEN), "{{kind}}"),),
        ),
        Panel(
            title="Goodput by queue, last day", width=12, unit="percentunit", may_be_empty=_NO_END,
            description="Which part of the time after the queue was training that was kept.",
            queries=(Query(_KEPT / (_AFTER_QUEUE > 0), "{{queue}}"),),
        ),
    ),
)  # fmt: skip

_FAILED: Final = Row(
    "Failures and restarts",
    (
        Panel(
            title="Failures by cause, last hour", is_stacked=True, may_be_empty=_FAILURES,
            description="One cause for many jobs at once is seldom the fault of their programs: an image, a node, "
            "memory. The causes are those of `trainmaster explain`.",
            queries=(Query(_HOUR.count(trainjobs.FAILURES, "cause", **_CHOSEN), "{{cause}}"),),
        ),
        Panel(
            title="Failures by exit code, last hour", is_stacked=True, may_be_empty=_FAILURES,
            description="Of the container that failed first. SIGKILL without OutOfMemory is mostly a node that "
            "ran out of memory; `not found` and `not executable` are of the image or the command.",
            queries=(
                Query(
                    _HOUR.count(trainjobs.FAILURES, "exit_class", exit_class=like(".+"), **_CHOSEN), "{{exit_class}}"
                ),
            ),
        ),
        Panel(
            title="Restarts by cause, last hour", is_stacked=True, may_be_empty=_RESTARTS,
            description="Restarts that the failure policy of JobSets allowed. Many by lost nodes or evictions: look at "
            "the nodes; many by failed containers: the jobs fail in the end.",
            queries=(Query(_HOUR.count(trainjobs.RESTARTS, "cause", **_CHOSEN), "{{cause}}"),),
        ),
        Panel(
            title="Failures by node, last day", width=24, is_stacked=True,
            may_be_empty="no failure was charged to a TrainJob with a resilience policy",
            description="Charged failures of TrainJobs with a resilience policy, of all runtimes, by the node of the "
            "pod that failed first. Several jobs on one node: drain it, or have policies avoid it by `nodes`.",
            queries=(Query(_DAY.count(trainjobs.NODE_FAILURES, "node"), "{{node}}"),),
        ),
    ),
)  # fmt: skip

_RESOURCES: Final = Row(
    "Nodes and accelerators",
    (
        Panel(
            title="Nodes of TrainJobs", width=12, colors=OF_STATES, may_be_empty=_NO_TRAINJOB,
            description="Pods that TrainJobs which have not ended ask for, by what has become of them. What is asked "
            "for and does not run waits for room.",
            queries=(Query(QUERIES.total(trainjobs.NODES, "state", **_CHOSEN), "{{state}}"),),
        ),
        Panel(
            title="Accelerators of TrainJobs", width=12, may_be_empty="no TrainJob asks for an accelerator",
            description="Devices that these pods ask for, by resource and what has become of them. Compare with what "
            "the nodes have; pods that have ended count as running until all of their Job have.",
            queries=(
                Query(QUERIES.total(trainjobs.ACCELERATORS, "resource", "state", **_CHOSEN), "{{resource}} {{state}}"),
            ),
        ),
    ),
)  # fmt: skip

TRAINJOBS: Final = Dashboard(
    uid="trainmaster-trainjobs",
    title="Trainmaster / TrainJobs",
    description="What becomes of TrainJobs: states and reasons, times, failures by cause, nodes and accelerators.",
    rows=(_NOW, _STATES, _TIMES, _GOODPUT, _FAILED, _RESOURCES),
    variables=(
        Variable(
            name="runtime", label="Runtime",
            values=Queries(target=QUERIES.target, window="").series(trainjobs.TRAINJOBS),
        ),
    ),
)  # fmt: skip
