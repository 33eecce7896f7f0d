"""The `rest_client_*` families under the names of client-go (K-10)."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from trainmaster.metrics.registry import REGISTRY

_DURATION_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)

NO_ANSWER = "<error>"
"""The value of the label `code` of a request that got no answer."""

REQUESTS = Counter(
    "rest_client_requests_total", "Requests to the API server", ("code", "method", "host"), registry=REGISTRY
)
REQUEST_DURATION = Histogram(
    "rest_client_request_duration_seconds", "How long requests took, watches excluded", ("verb", "host"),
    buckets=_DURATION_BUCKETS, registry=REGISTRY,
)  # fmt: skip
RETRIES = Counter(
    "rest_client_request_retries_total", "Requests that were sent again", ("code", "verb", "host"), registry=REGISTRY
)
