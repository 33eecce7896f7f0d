"""The dashboards of what answers others: webhooks and their certificate, the status server; and of plugins."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import certificates, plugins, statusserver, webhook
from trainmaster.metrics.dashboards.model import (
    QUERIES,
    Dashboard,
    Panel,
    Query,
    Row,
    quantiles,
    rates,
)
from trainmaster.metrics.promql import aggregate, unlike

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
            queries=(Query(QUERIES.total(webhook.IN_FLIGHT, "webhook"), "{{webhook}}"),),
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
            queries=(Query(QUERIES.total(statusserver.IN_FLIGHT, "pod"), "{{pod}}"),),
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


_STATE: Final = Row(
    "State",
    (
        Panel(
            title="Loaded",
            kind="stat",
            width=6,
            height=4,
            description="Plugins that run, in the manager that has most of them.",
            queries=(Query(aggregate("max", QUERIES.total(plugins.LOADED, "pod")).or_zero(), "loaded"),),
        ),
        Panel(
            title="Not loaded",
            kind="stat",
            width=6,
            height=4,
            description="Plugins that could not be loaded. The log of the manager says why, `trainmaster plugins` too; "
            "jobs that need one are blocked.",
            queries=(
                Query(aggregate("count", QUERIES.smallest(plugins.LOADED, "plugin") < 1).or_zero(), "not loaded"),
            ),
            steps=((1, "red"),),
        ),
        Panel(
            title="Quarantined",
            kind="stat",
            width=6,
            height=4,
            description="Plugins that are not called for a while because they kept failing. See the errors below, then "
            "mend the plugin or name it in plugins.disabled.",
            queries=(Query(aggregate("sum", QUERIES.largest(plugins.QUARANTINED, "plugin")).or_zero(), "quarantined"),),
            steps=((1, "red"),),
        ),
        Panel(
            title="Stuck calls",
            kind="stat",
            width=6,
            height=4,
            description="Calls that exceeded their time and do not return. Each holds a thread until the manager is "
            "restarted; /debug/threads shows where they stand.",
            queries=(Query(QUERIES.total(plugins.STUCK).or_zero(), "stuck"),),
            steps=((1, "red"),),
        ),
    ),
)  # fmt: skip

_CALLS: Final = Row(
    "Calls",
    (
        Panel(
            title="Calls a second",
            description="By plugin. Each resolution of a job calls every plugin that its runtime asks for, in each "
            "phase.",
            queries=rates(plugins.PLUGIN_CALLS, "plugin"),
            unit="ops",
            may_be_empty="no plugin was called so far",
        ),
        Panel(
            title="Duration of calls, p99",
            description="A plugin should take microseconds. Above 0.1 s it holds up every job: it may do no I/O.",
            queries=(Query(QUERIES.quantile(0.99, plugins.PLUGIN_DURATION, "plugin").observed(), "{{plugin}}"),),
            unit="s",
            steps=((0.1, "yellow"), (1, "red")),
        ),
        Panel(
            title="Share of the manager's time",
            description="Seconds of each second that calls of a plugin take. What is large here is worth a look at "
            "the plugin's code, however short each call is.",
            queries=(Query(QUERIES.sum_rate(plugins.PLUGIN_DURATION, "plugin"), "{{plugin}}"),),
            unit="percentunit",
            is_stacked=True,
            may_be_empty="no plugin was called so far",
        ),
        Panel(
            title="Failed calls a second",
            description="Calls that did not succeed. `rejected`: the plugin refuses a job, and the condition of the "
            "job says why; `error` and `timeout` are defects of the plugin; `refused`: it is quarantined.",
            queries=(
                Query(
                    QUERIES.rate(plugins.PLUGIN_CALLS, "plugin", "result", result=unlike("success")),
                    "{{plugin}} {{result}}",
                ),
            ),
            unit="ops",
            may_be_empty="no call has failed",
        ),
        Panel(
            title="Duration by phase, p99",
            description="Which extension point is slow, whatever the plugin.",
            queries=(Query(QUERIES.quantile(0.99, plugins.PLUGIN_DURATION, "phase").observed(), "{{phase}}"),),
            unit="s",
        ),
        Panel(
            title="Plans without a plugin, a second",
            description="Jobs that went on although a plugin failed or was quarantined, as its failure policy says. "
            "They lack what it would have added; their condition PluginSkipped names it.",
            queries=rates(plugins.SKIPPED, "plugin", "reason"),
            unit="ops",
            may_be_empty="no plugin was left out",
        ),
    ),
)  # fmt: skip

PLUGINS: Final = Dashboard(
    uid="trainmaster-plugins",
    title="Trainmaster / Plugins",
    description="For authors and operators of plugins: which are loaded, how long they take, how they fail.",
    rows=(_STATE, _CALLS),
)
