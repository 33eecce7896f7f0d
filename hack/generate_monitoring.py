"""Write the alerts and the dashboard of the manager, or check with --check that they are up to date.

They name metrics of `trainmaster.metrics` and no other; a test compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final, NamedTuple

import yaml

import generator
from trainmaster.runtime.jsontree import JsonObject

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "deploy/components/monitoring"

NAME: Final = "kubeflow-trainer-controller-manager"
_JOB: Final = f'job="{NAME}"'
"""The label by which Prometheus tells the manager's series from those of other controllers: the name of its Service."""


class Alert(NamedTuple):
    """When somebody has to look, and at what."""

    name: str
    severity: str
    duration: str
    expression: str
    summary: str
    description: str


def alerts() -> list[Alert]:
    """Return all alerts: what users notice, or soon will, and what only a change by somebody mends."""
    webhook_requests = f"controller_runtime_webhook_requests_total{{{_JOB}}}"
    failed_requests = f'controller_runtime_webhook_requests_total{{{_JOB},code=~"5.."}}'
    return [
        Alert(
            "TrainmasterNoLeader", "critical", "5m",
            f"(sum(leader_election_master_status{{{_JOB}}}) or vector(0)) < 1",
            "No manager leads.",
            "TrainJobs are neither started nor followed. Look at the pods of the manager and at their logs.",
        ),
        Alert(
            "TrainmasterReconcileErrors", "warning", "15m",
            f"sum by (controller) (rate(controller_runtime_reconcile_errors_total{{{_JOB}}}[5m]))"
            f" / sum by (controller) (rate(controller_runtime_reconcile_total{{{_JOB}}}[5m])) > 0.1",
            "More than a tenth of the reconciles of {{ $labels.controller }} fail.",
            "The log of the manager names the objects and the errors.",
        ),
        Alert(
            "TrainmasterReconcilePanics", "warning", "0m",
            f"sum by (controller) (increase(controller_runtime_reconcile_panics_total{{{_JOB}}}[15m])) > 0",
            "A reconcile of {{ $labels.controller }} ended with an unforeseen error.",
            "This is a defect of the manager or of a plugin. The log has the traceback.",
        ),
        Alert(
            "TrainmasterReconcileStuck", "warning", "5m",
            f"max by (controller) (workqueue_longest_running_processor_seconds{{{_JOB}}}) > 120",
            "A reconcile of {{ $labels.controller }} has been running for more than two minutes.",
            "It waits for the API server, or a plugin does not return.",
        ),
        Alert(
            "TrainmasterQueueGrows", "warning", "15m",
            f"histogram_quantile(0.99, sum by (controller, le) "
            f"(rate(workqueue_queue_duration_seconds_bucket{{{_JOB}}}[5m]))) > 60",
            "Keys of {{ $labels.controller }} wait for more than a minute before a worker takes them.",
            "The manager does not keep up: look at the API server's latency, the manager's CPU and "
            "clientConnection.qps in its configuration.",
        ),
        Alert(
            "TrainmasterPluginQuarantined", "warning", "15m",
            f"max by (plugin) (trainmaster_plugin_quarantined{{{_JOB}}}) > 0",
            "The plugin {{ $labels.plugin }} keeps failing and is not called.",
            "TrainJobs that it serves are blocked, or go on without it. The log of the manager has its errors. Mend "
            "it, or leave it out by plugins.disabled of the configuration.",
        ),
        Alert(
            "TrainmasterPluginNotLoaded", "warning", "15m",
            f"min by (plugin) (trainmaster_plugin_loaded{{{_JOB}}}) < 1",
            "The plugin {{ $labels.plugin }} did not load.",
            "TrainJobs whose runtimes ask for what it serves are blocked. The log of the manager says why.",
        ),
        Alert(
            "TrainmasterWebhookErrors", "critical", "5m",
            f"sum by (webhook) (rate({failed_requests}[5m])) / sum by (webhook) (rate({webhook_requests}[5m])) > 0.01",
            "The webhook {{ $labels.webhook }} fails.",
            "TrainJobs and runtimes are refused. The log of the manager has the reason.",
        ),
        Alert(
            "TrainmasterWebhookSlow", "warning", "10m",
            f"histogram_quantile(0.99, sum by (webhook, le) "
            f"(rate(controller_runtime_webhook_latency_seconds_bucket{{{_JOB}}}[5m]))) > 2",
            "The webhook {{ $labels.webhook }} takes more than two seconds.",
            "After ten seconds the API server refuses what it asked about.",
        ),
        Alert(
            "TrainmasterCertificateUnusable", "critical", "0m",
            f"sum by (pod) (increase(certwatcher_read_certificate_errors_total{{{_JOB}}}[15m])) > 0",
            "{{ $labels.pod }} cannot use the certificate that it was given.",
            "It goes on with the last good one, until that expires. The log names the file and what is wrong with it.",
        ),
        Alert(
            "TrainmasterCertificateExpires",
            "critical",
            "1h",
            f"min by (certificate) (trainmaster_certificate_expiry_timestamp_seconds{{{_JOB}}} > 0)"
            " - time() < 7 * 86400",
            "The certificate {{ $labels.certificate }} ends within a week and was not renewed.",
            "When it has ended, TrainJobs and runtimes are refused. docs/certificates.md says who renews it and when.",
        ),
        Alert(
            "TrainmasterAPIServerErrors", "warning", "10m",
            f'sum(rate(rest_client_requests_total{{{_JOB},code=~"5..|<error>"}}[5m]))'
            f" / sum(rate(rest_client_requests_total{{{_JOB}}}[5m])) > 0.1",
            "More than a tenth of the manager's requests to the API server fail.",
            "TrainJobs are late. Look at the API server, and at what is between it and the manager.",
        ),
        Alert(
            "TrainmasterEventLoopLags", "warning", "10m",
            f"histogram_quantile(0.99, sum by (pod, le) "
            f"(rate(trainmaster_event_loop_lag_seconds_bucket{{{_JOB}}}[5m]))) > 1",
            "{{ $labels.pod }} is late by more than a second.",
            "It lacks CPU, or a plugin blocks it. If it gets worse, it loses its lease.",
        ),
    ]  # fmt: skip


class Panel(NamedTuple):
    """A diagram: one line for each series that an expression has."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    """Expressions, each with the name of its lines."""


def _quantile(family: str, by: str) -> tuple[str, str]:
    rate = f"sum by ({by}, le) (rate({family}_bucket{{{_JOB}}}[$__rate_interval]))"
    return f"histogram_quantile(0.99, {rate})", f"{{{{{by}}}}}"


def _rate(counter: str, by: str, *, where: str = "") -> tuple[str, str]:
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return f"sum by ({by}) (rate({counter}{{{_JOB}{where}}}[$__rate_interval]))", legend


def panels() -> list[Panel]:
    """Return all diagrams, from what users notice to what explains it."""
    return [
        Panel("Leader", "short", ((f"leader_election_master_status{{{_JOB}}}", "{{pod}}"),)),
        Panel("Reconciles a second", "ops", (_rate("controller_runtime_reconcile_total", "controller, result"),)),
        Panel("Reconcile, p99", "s", (_quantile("controller_runtime_reconcile_time_seconds", "controller"),)),
        Panel("Keys in queues", "short", ((f"sum by (controller) (workqueue_depth{{{_JOB}}})", "{{controller}}"),)),
        Panel("Wait in queues, p99", "s", (_quantile("workqueue_queue_duration_seconds", "controller"),)),
        Panel("Failed reconciles a second", "ops", (_rate("controller_runtime_reconcile_errors_total", "controller"),)),
        Panel(
            "Admission requests a second", "ops", (_rate("controller_runtime_webhook_requests_total", "webhook, code"),)
        ),
        Panel("Admission, p99", "s", (_quantile("controller_runtime_webhook_latency_seconds", "webhook"),)),
        Panel("Progress reports a second", "ops", (_rate("trainmaster_progress_reports_total", "code"),)),
        Panel("Requests to the API server a second", "ops", (_rate("rest_client_requests_total", "method, code"),)),
        Panel("Requests to the API server, p99", "s", (_quantile("rest_client_request_duration_seconds", "verb"),)),
        Panel("Watches that ended a second", "ops", (_rate("trainmaster_informer_watch_restarts_total", "cause"),)),
        Panel(
            "Cached objects",
            "short",
            ((f"max by (resource) (trainmaster_informer_objects{{{_JOB}}})", "{{resource}}"),),
        ),
        Panel("Plugin call, p99", "s", (_quantile("trainmaster_plugin_call_seconds", "plugin"),)),
        Panel("Lag of the event loop, p99", "s", (_quantile("trainmaster_event_loop_lag_seconds", "pod"),)),
        Panel("CPU", "short", (_rate("process_cpu_seconds_total", "pod"),)),
        Panel("Memory", "bytes", ((f"process_resident_memory_bytes{{{_JOB}}}", "{{pod}}"),)),
        Panel("Open files", "short", ((f"process_open_fds{{{_JOB}}}", "{{pod}}"),)),
    ]


def prometheus_rule() -> JsonObject:
    """Return the object of the Prometheus operator."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.duration,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.description},
        }
        for alert in alerts()
    ]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {"groups": [{"name": "trainmaster", "rules": rules}]},
    }


LABELS: Final = {
    "app.kubernetes.io/name": "trainer",
    "app.kubernetes.io/component": "manager",
    "app.kubernetes.io/part-of": "kubeflow",
}

_COLUMNS: Final = 3
_WIDTH: Final = 8
_HEIGHT: Final = 8


def dashboard() -> JsonObject:
    """Return the dashboard, as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    made = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": source,
            "gridPos": {
                "x": number % _COLUMNS * _WIDTH,
                "y": number // _COLUMNS * _HEIGHT,
                "w": _WIDTH,
                "h": _HEIGHT,
            },
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + index), "datasource": source, "expr": expression, "legendFormat": legend}
                for index, (expression, legend) in enumerate(panel.lines)
            ],
        }
        for number, panel in enumerate(panels())
    ]
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return {
        "uid": "trainmaster",
        "title": "Trainmaster",
        "tags": ["kubeflow", "trainer"],
        "schemaVersion": 39,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [variable]},
        "panels": made,
    }


def files() -> dict[Path, str]:
    """Return the text of each generated file."""
    header = "# Generated by hack/generate_monitoring.py. Do not edit.\n"
    rule = yaml.dump(prometheus_rule(), Dumper=generator.Dumper, sort_keys=False, width=120)
    return {
        TARGET / "prometheus_rule.yaml": header + rule,
        TARGET / "trainmaster.json": json.dumps(dashboard(), indent=1) + "\n",
    }


def main() -> int:
    """Run the command; the exit status is 1 if --check finds a difference."""
    return generator.write(files(), check=generator.parser(__doc__).parse_args().check)


if __name__ == "__main__":
    sys.exit(main())
