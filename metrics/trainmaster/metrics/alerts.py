"""The alerts, made of the families of this package, and the rules that Prometheus reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from trainmaster.metrics import (
    cache,
    certificates,
    configuration,
    controller,
    history,
    plugins,
    process,
    queue,
    resilience,
    rest_client,
    statusserver,
    trainjobs,
    webhook,
)
from trainmaster.metrics.jobs import COUNTERS
from trainmaster.metrics.promql import (
    MOST_FILES,
    OPEN_FILES,
    SAMPLES,
    UP,
    Expression,
    Queries,
    UnknownLabel,
    absent,
    aggregate,
    like,
    unlike,
)

JOB: Final = "kubeflow-trainer-controller-manager"
"""The label by which Prometheus tells the manager's series from those of other controllers: the name of its Service."""

RUNBOOKS: Final = "docs/runbooks/README.md"
"""The page that says what to do, in the repository; the chart can make addresses of it."""

QUERIES: Final = Queries(target=f'job="{JOB}"', window="5m")

_LABEL: Final = re.compile(r"\$labels\.(\w+)")

_HOUR: Final = QUERIES.within("1h")
_DAY: Final = QUERIES.within("24h")

_ENDED: Final = _HOUR.count(trainjobs.TIME_TO_END)
_FAILED: Final = _HOUR.count(trainjobs.TIME_TO_END, result="Failed")
_LOST: Final = _DAY.count(trainjobs.SECONDS, "runtime", kind="Lost")
_TRAINED: Final = _DAY.count(trainjobs.SECONDS, "runtime", kind=like("Lost|Productive"))
_V1_FAILED: Final = _HOUR.count(COUNTERS["failed"], "framework")
_V1_SUCCESSFUL: Final = _HOUR.count(COUNTERS["successful"], "framework")

_OF_THE_PROGRAM: Final = (
    "ContainerFailed|OutOfMemory|DeadlineExceeded|BackoffLimitExceeded|Refused|RuntimeMissing|WorldSizeMismatch"
    "|NoProgress|LogRuleBroken|Unknown"
)
"""Causes that are the matter of each job's owner, as a rule."""

_RUNNING: Final = aggregate("sum", QUERIES.series(trainjobs.TRAINJOBS, state="Running"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """When somebody has to look, and at what."""

    name: str
    severity: Literal["critical", "warning"] = "warning"
    """Critical: jobs are refused, or nothing happens to them, until somebody does something."""

    duration: str
    """How long it must be so."""

    expression: Expression
    summary: str
    description: str

    def __post_init__(self) -> None:
        unknown = set(_LABEL.findall(f"{self.summary} {self.description}")) - self.expression.labels
        if unknown:
            raise UnknownLabel(f"{self.name} tells of {', '.join(unknown)}, which {self.expression.text} does not have")

    @property
    def runbook(self) -> str:
        """The section that says what to do."""
        return f"{RUNBOOKS}#{self.name.lower()}"


MANAGER: Final = (
    Alert(
        name="TrainmasterDown",
        severity="critical",
        duration="5m",
        expression=absent(QUERIES.series(UP) > 0),
        summary="No manager answers Prometheus.",
        description="Either no manager runs, and TrainJobs are neither admitted nor started, or Prometheus may not "
        "read its metrics. Look at the pods of the manager, then at the targets of Prometheus.",
    ),
    Alert(
        name="TrainmasterNoLeader",
        severity="critical",
        duration="5m",
        expression=QUERIES.total(controller.MASTER_STATUS, "namespace") < 1,
        summary="No manager leads.",
        description="Managers run, and none of them holds the lease: TrainJobs are neither started nor followed. Look "
        "at the logs of the managers and at the Lease.",
    ),
    Alert(
        name="TrainmasterTwoLeaders",
        severity="critical",
        duration="2m",
        expression=QUERIES.total(controller.MASTER_STATUS, "name") > 1,
        summary="More than one manager says that it leads by the lease {{ $labels.name }}.",
        description="They hold leases of this name in different namespaces, or a clock of theirs stands. Both write; "
        "look at the Leases and at the configurations of the managers.",
    ),
    Alert(
        name="TrainmasterLeaderChangesOften",
        duration="0m",
        expression=aggregate("sum", QUERIES.within("1h").changes(controller.MASTER_STATUS), "namespace") > 8,
        summary="The leader has changed often within an hour.",
        description="Leases cannot be renewed in time: the API server is slow, or the manager lacks CPU.",
    ),
    Alert(
        name="TrainmasterReconcileErrors",
        duration="15m",
        expression=QUERIES.rate(controller.ERRORS, "controller") / QUERIES.rate(controller.RECONCILES, "controller")
        > 0.1,
        summary="More than a tenth of the reconciles of {{ $labels.controller }} fail.",
        description="The log of the manager names the objects and the errors.",
    ),
    Alert(
        name="TrainmasterReconcilePanics",
        duration="0m",
        expression=QUERIES.within("15m").increase(controller.PANICS, "controller") > 0,
        summary="A reconcile of {{ $labels.controller }} ended with an unforeseen error.",
        description="This is a defect of the manager or of a plugin. The log has the traceback.",
    ),
    Alert(
        name="TrainmasterReconcileStuck",
        duration="5m",
        expression=QUERIES.largest(queue.LONGEST_RUNNING, "controller") > 120,
        summary="A reconcile of {{ $labels.controller }} has been running for more than two minutes.",
        description="It waits for the API server, or a plugin does not return.",
    ),
    Alert(
        name="TrainmasterQueueGrows",
        duration="15m",
        expression=QUERIES.quantile(0.99, queue.QUEUE_DURATION, "controller") > 60,
        summary="Keys of {{ $labels.controller }} wait for more than a minute before a worker takes them.",
        description="The manager does not keep up: look at the API server's latency, the manager's CPU and "
        "clientConnection.qps in its configuration.",
    ),
    Alert(
        name="TrainmasterEventLoopLags",
        duration="10m",
        expression=QUERIES.quantile(0.99, process.LOOP_LAG, "pod") > 1,
        summary="{{ $labels.pod }} is late by more than a second.",
        description="It lacks CPU, or a plugin blocks it. If it gets worse, it loses its lease.",
    ),
    Alert(
        name="TrainmasterFilesRunOut",
        duration="10m",
        expression=QUERIES.largest(OPEN_FILES, "pod") / QUERIES.largest(MOST_FILES, "pod") > 0.8,
        summary="{{ $labels.pod }} has opened most of the files and connections that it may.",
        description="When they are used up, it can neither answer webhooks nor ask the API server.",
    ),
    Alert(
        name="TrainmasterConfigurationInvalid",
        duration="5m",
        expression=QUERIES.smallest(configuration.LAST_RELOAD_SUCCESSFUL, "pod") < 1,
        summary="{{ $labels.pod }} cannot use the configuration file that is mounted now.",
        description="It goes on with the values of the last good one, until it is restarted: then it does not start. "
        "The log names the line, `trainmaster config check` too.",
    ),
    Alert(
        name="TrainmasterHistoryFails",
        duration="15m",
        expression=QUERIES.largest(history.STORE_FAILING, "pod") > 0,
        summary="{{ $labels.pod }} cannot record which jobs have ended.",
        description="The store of the history cannot be used. Jobs go on; of those that are deleted meanwhile, records "
        "are lost when too many wait. The log says where, why, and what to do, /readyz?verbose too.",
    ),
    Alert(
        name="TrainmasterSeriesGrow",
        duration="30m",
        expression=QUERIES.largest(SAMPLES, "pod") > 10_000,
        summary="{{ $labels.pod }} has more than ten thousand series of metrics.",
        description="They are bounded for TrainJobs, whatever their number. Jobs of kubeflow.org/v1 are counted by "
        "namespace, and plugins may have series of their own: see which family it is.",
    ),
)


REQUESTS: Final = (
    Alert(
        name="TrainmasterAPIServerErrors",
        duration="10m",
        expression=QUERIES.rate(rest_client.REQUESTS, code=like(f"5..|{rest_client.NO_ANSWER}"))
        / QUERIES.rate(rest_client.REQUESTS)
        > 0.1,
        summary="More than a tenth of the manager's requests to the API server fail.",
        description="TrainJobs are late. Look at the API server, and at what is between it and the manager.",
    ),
    Alert(
        name="TrainmasterRequestsDenied",
        duration="10m",
        expression=QUERIES.within("10m").increase(rest_client.REQUESTS, "method", code=like("401|403")) > 5,
        summary="The API server denies {{ $labels.method }} requests of the manager.",
        description="A role of the manager lacks a right, or its token is not accepted. The log names the requests, "
        "`trainmaster rbac` prints what is needed.",
    ),
    Alert(
        name="TrainmasterRequestsLimited",
        duration="15m",
        expression=QUERIES.quantile(0.99, rest_client.RATE_LIMITER_DURATION, "verb") > 2,
        summary="{{ $labels.verb }} requests wait for more than two seconds before they are sent.",
        description="The manager's own limit holds them back: raise clientConnection.qps and burst in its "
        "configuration if the API server answers fast.",
    ),
    Alert(
        name="TrainmasterCacheNotFilled",
        duration="10m",
        expression=QUERIES.smallest(cache.SYNCED, "pod", "resource") < 1,
        summary="{{ $labels.pod }} has not been able to read all {{ $labels.resource }}.",
        description="It starts nothing before it has. Mostly a right is missing: the log has what the API server "
        "answered.",
    ),
    Alert(
        name="TrainmasterCacheStale",
        duration="5m",
        expression=QUERIES.largest(cache.AGE, "pod", "resource") > 300,
        summary="{{ $labels.pod }} has heard nothing of {{ $labels.resource }} for five minutes.",
        description="Servers send bookmarks about once a minute: the watch stands, and the manager acts on what "
        "was then.",
    ),
    Alert(
        name="TrainmasterWatchesFail",
        duration="10m",
        expression=QUERIES.within("15m").increase(cache.FAILURES, "resource") > 10,
        summary="Watches of {{ $labels.resource }} keep failing.",
        description="The manager learns late of changes, or not at all. The log of the manager has what the API server "
        "answered.",
    ),
    Alert(
        name="TrainmasterObjectsUnreadable",
        duration="15m",
        expression=QUERIES.largest(cache.UNREADABLE, "resource") > 0,
        summary="Some {{ $labels.resource }} are of a form that the manager cannot read.",
        description="It leaves them alone, and what depends on them. The log names each: somebody wrote them while a "
        "definition without a schema was installed, or a newer version did.",
    ),
)


SERVERS: Final = (
    Alert(
        name="TrainmasterWebhookErrors",
        severity="critical",
        duration="5m",
        expression=QUERIES.rate(webhook.REQUESTS, "webhook", code=like("5.."))
        / QUERIES.rate(webhook.REQUESTS, "webhook")
        > 0.01,
        summary="The webhook {{ $labels.webhook }} fails.",
        description="TrainJobs and runtimes are refused. The log of the manager has the reason.",
    ),
    Alert(
        name="TrainmasterWebhookSlow",
        duration="10m",
        expression=QUERIES.quantile(0.99, webhook.LATENCY, "webhook") > 2,
        summary="The webhook {{ $labels.webhook }} takes more than two seconds.",
        description="After ten seconds the API server refuses what it asked about.",
    ),
    Alert(
        name="TrainmasterWebhookConfigurationMissing",
        severity="critical",
        duration="5m",
        expression=QUERIES.largest(certificates.MISSING, "configuration") > 0,
        summary="The {{ $labels.configuration }} does not exist.",
        description="What it covers is admitted without validation and defaults. Apply the manifests again.",
    ),
    Alert(
        name="TrainmasterCertificateUnusable",
        severity="critical",
        duration="0m",
        expression=QUERIES.within("15m").increase(webhook.CERTIFICATE_ERRORS, "pod") > 0,
        summary="{{ $labels.pod }} cannot use the certificate that it was given.",
        description="It goes on with the last good one, until that expires. The log names the file and what is wrong "
        "with it.",
    ),
    Alert(
        name="TrainmasterCertificateExpires",
        severity="critical",
        duration="1h",
        expression=aggregate("min", (QUERIES.series(certificates.EXPIRY) > 0).until(), "certificate") < 7 * 86400,
        summary="The certificate {{ $labels.certificate }} ends within a week and was not renewed.",
        description="When it has ended, TrainJobs and runtimes are refused. docs/certificates.md says who renews it "
        "and when.",
    ),
    Alert(
        name="TrainmasterProgressReportsFail",
        duration="15m",
        expression=QUERIES.rate(statusserver.REPORTS, code=like("408|429|5..")) / QUERIES.rate(statusserver.REPORTS)
        > 0.05,
        summary="The status server does not take reports of progress.",
        description="The progress of TrainJobs is late or missing; training goes on. Code 429 is the limit of "
        "statusServer.qps, 5xx an API server that does not review tokens or take statuses.",
    ),
)


PLUGINS: Final = (
    Alert(
        name="TrainmasterPluginQuarantined",
        duration="15m",
        expression=QUERIES.largest(plugins.QUARANTINED, "plugin") > 0,
        summary="The plugin {{ $labels.plugin }} keeps failing and is not called.",
        description="TrainJobs that it serves are blocked, or go on without it. The log of the manager has its errors. "
        "Mend it, or leave it out by plugins.disabled of the configuration.",
    ),
    Alert(
        name="TrainmasterPluginNotLoaded",
        duration="15m",
        expression=QUERIES.smallest(plugins.LOADED, "plugin") < 1,
        summary="The plugin {{ $labels.plugin }} did not load.",
        description="TrainJobs whose runtimes ask for what it serves are blocked. The log of the manager says why.",
    ),
    Alert(
        name="TrainmasterPluginStuck",
        duration="10m",
        expression=QUERIES.largest(plugins.STUCK, "plugin", "pod") > 0,
        summary="Calls of the plugin {{ $labels.plugin }} do not return in {{ $labels.pod }}.",
        description="Each holds a thread until the manager is restarted. /debug/threads shows where they stand.",
    ),
    Alert(
        name="TrainmasterPluginUndecided",
        duration="0s",
        expression=QUERIES.within("15m").count(
            plugins.PLUGIN_CALLS, "plugin", phase="applies_to", result=like("error|timeout|refused")
        )
        > 0,
        summary="The plugin {{ $labels.plugin }} cannot say whether it serves some TrainJobs.",
        description="These are blocked, or go on without it. The log of the manager has its errors.",
    ),
)


TRAINJOBS: Final = (
    Alert(
        name="TrainmasterTrainJobsFail",
        duration="5m",
        expression=(_FAILED / _ENDED > 0.5) & (_ENDED > 10),
        summary="More than half of the TrainJobs that ended within an hour have failed.",
        description="So many at once are seldom the fault of their programs. The dashboard TrainJobs shows the causes, "
        "`trainmaster explain` of one of them the evidence.",
    ),
    Alert(
        name="TrainmasterTrainJobsFailAlike",
        duration="0m",
        expression=_HOUR.count(trainjobs.FAILURES, "cause", cause=unlike(_OF_THE_PROGRAM)) > 5,
        summary="Several TrainJobs have failed within an hour by the same cause: {{ $labels.cause }}.",
        description="The cause is of the cluster rather than of their programs. `trainmaster explain` of one of them "
        "has the evidence, and what to do.",
    ),
    Alert(
        name="TrainmasterTrainJobsRestart",
        duration="0m",
        expression=_HOUR.count(trainjobs.RESTARTS, "cause") > 20,
        summary="TrainJobs were restarted more than twenty times within an hour by {{ $labels.cause }}.",
        description="Each restart costs what was done since the last checkpoint, and the jobs fail when their limit is "
        "reached.",
    ),
    Alert(
        name="TrainmasterTrainJobsDoNotStart",
        duration="5m",
        expression=(_HOUR.lowest_sum(trainjobs.TRAINJOBS, state="Waiting") > 0)
        & (_HOUR.count(trainjobs.TIME_TO_RUNNING).or_zero() < 1),
        summary="TrainJobs have been waiting for an hour, and none has started.",
        description="There is no room, or something keeps all of them from starting. `trainmaster explain` of one of "
        "them says what.",
    ),
    Alert(
        name="TrainmasterTrainJobsWaitLong",
        duration="30m",
        expression=_HOUR.quantile_of_few(0.9, trainjobs.TIME_TO_RUNNING, "runtime") > 1800,
        summary="A tenth of the TrainJobs of {{ $labels.runtime }} waits for more than half an hour to run.",
        description="There is too little room for what is asked for, or images take long. The dashboard TrainJobs "
        "shows what of it is the manager's.",
    ),
    Alert(
        name="TrainmasterJobSetsLate",
        duration="10m",
        expression=QUERIES.quantile(0.99, trainjobs.TIME_TO_JOBSET) > 60,
        summary="The manager takes more than a minute until a new TrainJob has its JobSet.",
        description="It does not keep up, or something blocks the TrainJobs: their conditions say what.",
    ),
    Alert(
        name="TrainmasterNoProgress",
        duration="30m",
        expression=(QUERIES.within("30m").increase(statusserver.REPORTS, code="200") < 1)
        & (QUERIES.within("6h").increase(statusserver.REPORTS, code="200") > 0)
        & (_RUNNING > 0),
        summary="TrainJobs run, and none of them reports progress any more.",
        description="Trainers have reported within the last hours. Either all of them hang, or their reports do not "
        "arrive: look at the log of one, and at the Service and NetworkPolicies of the status server.",
    ),
    Alert(
        name="TrainmasterTrainJobsStandStill",
        duration="0m",
        expression=_HOUR.count(resilience.VIOLATIONS, reason="NoProgress") > 2,
        summary="More than two trainings stood still within an hour.",
        description="Their resilience policies found no progress in time. What hangs several jobs is mostly storage, "
        "network or a node: the events NoProgress say which node wrote last.",
    ),
    Alert(
        name="TrainmasterTrainingLost",
        duration="0m",
        expression=(_LOST > 3600) & (_LOST / _TRAINED > 0.2),
        summary="TrainJobs of {{ $labels.runtime }} that ended within a day have lost a fifth of their training.",
        description="Failures or disruptions set them back to their last checkpoints again and again. Checkpoints that "
        "are written more often cost less; `trainmaster explain` says what restarted a job.",
    ),
    Alert(
        name="TrainmasterNodeFailsTrainJobs",
        duration="0m",
        expression=_DAY.count(trainjobs.NODE_FAILURES, "node", node=unlike(trainjobs.OTHER)) > 5,
        summary="More than five failures of TrainJobs within a day began on node {{ $labels.node }}.",
        description="If they were several jobs, the node is at fault: memory, devices, network. `trainmaster top` "
        "names such nodes.",
    ),
    Alert(
        name="TrainmasterV1JobsFail",
        duration="5m",
        expression=(_V1_FAILED > 10).unless(_V1_SUCCESSFUL > _V1_FAILED),
        summary="More than half of the jobs of {{ $labels.framework }} that ended within an hour have failed.",
        description="So many at once are seldom the fault of their programs. `kubectl describe` of some of them has "
        "the reason in the condition Failed.",
    ),
)


GROUPS: Final[dict[str, tuple[Alert, ...]]] = {
    "trainmaster": MANAGER,
    "trainmaster-requests": REQUESTS,
    "trainmaster-servers": SERVERS,
    "trainmaster-plugins": PLUGINS,
    "trainmaster-jobs": TRAINJOBS,
}


def alert_rule(alert: Alert) -> dict[str, Any]:
    """Return the rule of an alert."""
    return {
        "alert": alert.name,
        "expr": alert.expression.text,
        "for": alert.duration,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.description, "runbook": alert.runbook},
    }


def rule_groups(groups: dict[str, tuple[Alert, ...]]) -> list[dict[str, Any]]:
    """Return the groups of a file of rules; Prometheus looks at the rules of a group at the same moment."""
    return [{"name": name, "rules": [alert_rule(alert) for alert in alerts]} for name, alerts in groups.items()]
