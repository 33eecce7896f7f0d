"""Alerts about what answers others: webhooks, their certificate, the status server."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import certificates, statusserver, webhook
from trainmaster.metrics.alerts.model import QUERIES, Alert, largest
from trainmaster.metrics.promql import aggregate, like

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
        severity="warning",
        duration="10m",
        expression=QUERIES.quantile(0.99, webhook.LATENCY, "webhook") > 2,
        summary="The webhook {{ $labels.webhook }} takes more than two seconds.",
        description="After ten seconds the API server refuses what it asked about.",
    ),
    Alert(
        name="TrainmasterWebhookConfigurationMissing",
        severity="critical",
        duration="5m",
        expression=largest(certificates.MISSING, "configuration") > 0,
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
        severity="warning",
        duration="15m",
        expression=QUERIES.rate(statusserver.REPORTS, code=like("408|429|5..")) / QUERIES.rate(statusserver.REPORTS)
        > 0.05,
        summary="The status server does not take reports of progress.",
        description="The progress of TrainJobs is late or missing; training goes on. Code 429 is the limit of "
        "statusServer.qps, 5xx an API server that does not review tokens or take statuses.",
    ),
)
