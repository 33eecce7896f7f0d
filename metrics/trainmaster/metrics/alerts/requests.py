"""Alerts about what the manager asks of the API server, and what it hears of it."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import cache, rest_client
from trainmaster.metrics.alerts.model import QUERIES, Alert, largest, smallest
from trainmaster.metrics.promql import like

REQUESTS: Final = (
    Alert(
        name="TrainmasterAPIServerErrors",
        severity="warning",
        duration="10m",
        expression=QUERIES.rate(rest_client.REQUESTS, code=like(f"5..|{rest_client.NO_ANSWER}"))
        / QUERIES.rate(rest_client.REQUESTS)
        > 0.1,
        summary="More than a tenth of the manager's requests to the API server fail.",
        description="TrainJobs are late. Look at the API server, and at what is between it and the manager.",
    ),
    Alert(
        name="TrainmasterRequestsDenied",
        severity="warning",
        duration="10m",
        expression=QUERIES.within("10m").increase(rest_client.REQUESTS, "method", code=like("401|403")) > 5,
        summary="The API server denies {{ $labels.method }} requests of the manager.",
        description="A role of the manager lacks a right, or its token is not accepted. The log names the requests, "
        "`trainmaster rbac` prints what is needed.",
    ),
    Alert(
        name="TrainmasterRequestsLimited",
        severity="warning",
        duration="15m",
        expression=QUERIES.quantile(0.99, rest_client.RATE_LIMITER_DURATION, "verb") > 2,
        summary="{{ $labels.verb }} requests wait for more than two seconds before they are sent.",
        description="The manager's own limit holds them back: raise clientConnection.qps and burst in its "
        "configuration if the API server answers fast.",
    ),
    Alert(
        name="TrainmasterCacheNotFilled",
        severity="warning",
        duration="10m",
        expression=smallest(cache.SYNCED, "pod", "resource") < 1,
        summary="{{ $labels.pod }} has not been able to read all {{ $labels.resource }}.",
        description="It starts nothing before it has. Mostly a right is missing: the log has what the API server "
        "answered.",
    ),
    Alert(
        name="TrainmasterCacheStale",
        severity="warning",
        duration="5m",
        expression=largest(cache.AGE, "pod", "resource") > 300,
        summary="{{ $labels.pod }} has heard nothing of {{ $labels.resource }} for five minutes.",
        description="Servers send bookmarks about once a minute: the watch stands, and the manager acts on what "
        "was then.",
    ),
    Alert(
        name="TrainmasterWatchesFail",
        severity="warning",
        duration="10m",
        expression=QUERIES.within("15m").increase(cache.FAILURES, "resource") > 10,
        summary="Watches of {{ $labels.resource }} keep failing.",
        description="The manager learns late of changes, or not at all. The log of the manager has what the API server "
        "answered.",
    ),
    Alert(
        name="TrainmasterObjectsUnreadable",
        severity="warning",
        duration="15m",
        expression=largest(cache.UNREADABLE, "resource") > 0,
        summary="Some {{ $labels.resource }} are of a form that the manager cannot read.",
        description="It leaves them alone, and what depends on them. The log names each: somebody wrote them while a "
        "definition without a schema was installed, or a newer version did.",
    ),
)
