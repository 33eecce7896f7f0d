"""What answers others: admission webhooks with their certificate, and the status server."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import certificates, statusserver, webhook
from trainmaster.metrics.dashboards.model import QUERIES, Dashboard, Panel, Query, Row, quantiles, rates, total
from trainmaster.metrics.promql import aggregate

_ADMISSION: Final = Row(
    "Admission webhooks",
    (
        Panel(
            title="Reviews a second",
            description="By webhook and HTTP code; a job that is refused is a review with code 200. 500 means that "
            "the API server refuses whatever it asked about: the log has the reason.",
            queries=rates(webhook.REQUESTS, "webhook", "code"),
            unit="reqps",
        ),
        Panel(
            title="Duration of reviews",
            description="Users wait for it at each submission; after ten seconds the API server gives up. If it is "
            "slow while the event loop lags (dashboard Controller), add replicas: all of them answer.",
            queries=quantiles(webhook.LATENCY, "webhook"),
            unit="s",
            steps=((2, "red"),),
        ),
        Panel(
            title="Reviews in flight",
            description="Reviews that are being answered. A number that only grows is one of clients that do not "
            "read, or of an event loop that stands.",
            queries=(Query(total(webhook.IN_FLIGHT, "webhook"), "{{webhook}}"),),
        ),
    ),
)

_CERTIFICATES: Final = Row(
    "Errors and certificates",
    (
        Panel(
            title="Unforeseen errors",
            description="Reviews that ended with an unforeseen error, within the last hour: a defect of the manager "
            "or of a plugin. The log has the traceback.",
            height=6,
            kind="stat",
            queries=(Query(QUERIES.within("1h").increase(webhook.PANICS).or_zero(), "errors"),),
            steps=((1, "red"),),
        ),
        Panel(
            title="Certificates end in",
            description="They are renewed long before; below a week somebody has to look: docs/certificates.md.",
            height=6,
            kind="stat",
            unit="s",
            base="red",
            steps=((7 * 86400, "yellow"), (14 * 86400, "green")),
            queries=(
                Query(
                    aggregate("min", (QUERIES.series(certificates.EXPIRY) > 0).until(), "certificate"),
                    "{{certificate}}",
                ),
            ),
            may_be_empty="the manager serves without TLS",
        ),
        Panel(
            title="Reads of certificates, a second",
            description="How often the files of the certificate were read, and how often what they had could not be "
            "used: a key that does not belong to the certificate, or half a file. The last good one stays in use.",
            height=6,
            queries=(
                Query(QUERIES.rate(webhook.CERTIFICATE_READS), "reads"),
                Query(QUERIES.rate(webhook.CERTIFICATE_ERRORS), "errors"),
            ),
            unit="ops",
        ),
    ),
)  # fmt: skip

_STATUS: Final = Row(
    "Status server",
    (
        Panel(
            title="Progress reports a second",
            width=6,
            description="By HTTP code. 403: a trainer without a right to report, mostly an expired token; 404: its "
            "job is gone; 422: it reports what it may not; 429: it reports too often.",
            queries=rates(statusserver.REPORTS, "code"),
            unit="reqps",
        ),
        Panel(
            title="Duration of reports",
            width=6,
            description="Waits for the server's own rate limit included. Trainers do not wait for it, but reports "
            "arrive late.",
            queries=quantiles(statusserver.DURATION),
            unit="s",
        ),
        Panel(
            title="Reports in flight",
            width=6,
            description="Reports that are being answered, by manager.",
            queries=(Query(total(statusserver.IN_FLIGHT, "pod"), "{{pod}}"),),
        ),
        Panel(
            title="Reviews of tokens a second",
            width=6,
            description="Tokens that the API server was asked about; answers are kept for a while. `refused` are "
            "trainers that may not report, `failed` an API server that does not answer.",
            queries=rates(statusserver.REVIEWS, "outcome"),
            unit="ops",
        ),
    ),
)

WEBHOOKS: Final = Dashboard(
    uid="trainmaster-webhooks",
    title="Trainmaster / Webhooks and status server",
    description="What users and trainers call: admission reviews, certificates, reports of progress.",
    rows=(_ADMISSION, _CERTIFICATES, _STATUS),
)
