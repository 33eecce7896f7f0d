"""Alerts about the manager itself: whether it is there, leads, and gets on with its work."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import configuration, controller, history, process, queue
from trainmaster.metrics.alerts.model import QUERIES, Alert, largest, smallest
from trainmaster.metrics.promql import MOST_FILES, OPEN_FILES, SAMPLES, UP, absent, aggregate

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
        expression=aggregate("sum", QUERIES.series(controller.MASTER_STATUS), "namespace") < 1,
        summary="No manager leads.",
        description="Managers run, and none of them holds the lease: TrainJobs are neither started nor followed. Look "
        "at the logs of the managers and at the Lease.",
    ),
    Alert(
        name="TrainmasterTwoLeaders",
        severity="critical",
        duration="2m",
        expression=aggregate("sum", QUERIES.series(controller.MASTER_STATUS), "name") > 1,
        summary="More than one manager says that it leads by the lease {{ $labels.name }}.",
        description="They hold leases of this name in different namespaces, or a clock of theirs stands. Both write; "
        "look at the Leases and at the configurations of the managers.",
    ),
    Alert(
        name="TrainmasterLeaderChangesOften",
        severity="warning",
        duration="0m",
        expression=aggregate("sum", QUERIES.within("1h").changes(controller.MASTER_STATUS), "namespace") > 8,
        summary="The leader has changed often within an hour.",
        description="Leases cannot be renewed in time: the API server is slow, or the manager lacks CPU.",
    ),
    Alert(
        name="TrainmasterReconcileErrors",
        severity="warning",
        duration="15m",
        expression=QUERIES.rate(controller.ERRORS, "controller") / QUERIES.rate(controller.RECONCILES, "controller")
        > 0.1,
        summary="More than a tenth of the reconciles of {{ $labels.controller }} fail.",
        description="The log of the manager names the objects and the errors.",
    ),
    Alert(
        name="TrainmasterReconcilePanics",
        severity="warning",
        duration="0m",
        expression=QUERIES.within("15m").increase(controller.PANICS, "controller") > 0,
        summary="A reconcile of {{ $labels.controller }} ended with an unforeseen error.",
        description="This is a defect of the manager or of a plugin. The log has the traceback.",
    ),
    Alert(
        name="TrainmasterReconcileStuck",
        severity="warning",
        duration="5m",
        expression=largest(queue.LONGEST_RUNNING, "controller") > 120,
        summary="A reconcile of {{ $labels.controller }} has been running for more than two minutes.",
        description="It waits for the API server, or a plugin does not return.",
    ),
    Alert(
        name="TrainmasterQueueGrows",
        severity="warning",
        duration="15m",
        expression=QUERIES.quantile(0.99, queue.QUEUE_DURATION, "controller") > 60,
        summary="Keys of {{ $labels.controller }} wait for more than a minute before a worker takes them.",
        description="The manager does not keep up: look at the API server's latency, the manager's CPU and "
        "clientConnection.qps in its configuration.",
    ),
    Alert(
        name="TrainmasterEventLoopLags",
        severity="warning",
        duration="10m",
        expression=QUERIES.quantile(0.99, process.LOOP_LAG, "pod") > 1,
        summary="{{ $labels.pod }} is late by more than a second.",
        description="It lacks CPU, or a plugin blocks it. If it gets worse, it loses its lease.",
    ),
    Alert(
        name="TrainmasterFilesRunOut",
        severity="warning",
        duration="10m",
        expression=largest(OPEN_FILES, "pod") / largest(MOST_FILES, "pod") > 0.8,
        summary="{{ $labels.pod }} has opened most of the files and connections that it may.",
        description="When they are used up, it can neither answer webhooks nor ask the API server.",
    ),
    Alert(
        name="TrainmasterConfigurationInvalid",
        severity="warning",
        duration="5m",
        expression=smallest(configuration.LAST_RELOAD_SUCCESSFUL, "pod") < 1,
        summary="{{ $labels.pod }} cannot use the configuration file that is mounted now.",
        description="It goes on with the values of the last good one, until it is restarted: then it does not start. "
        "The log names the line, `trainmaster config check` too.",
    ),
    Alert(
        name="TrainmasterHistoryFails",
        severity="warning",
        duration="15m",
        expression=largest(history.STORE_FAILING, "pod") > 0,
        summary="{{ $labels.pod }} cannot record which jobs have ended.",
        description="The store of the history cannot be used. Jobs go on; of those that are deleted meanwhile, records "
        "are lost when too many wait. The log says where, why, and what to do, /readyz?verbose too.",
    ),
    Alert(
        name="TrainmasterSeriesGrow",
        severity="warning",
        duration="30m",
        expression=largest(SAMPLES, "pod") > 10_000,
        summary="{{ $labels.pod }} has more than ten thousand series of metrics.",
        description="They are bounded for TrainJobs, whatever their number. Jobs of kubeflow.org/v1 are counted by "
        "namespace, and plugins may have series of their own: see which family it is.",
    ),
)
