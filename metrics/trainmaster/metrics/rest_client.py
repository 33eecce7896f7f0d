"""The `rest_client_*` families under the names of client-go (K-10), and the connections below them."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from trainmaster.metrics.registry import REGISTRY

_DURATION_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_SIZE_BUCKETS = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)

NO_ANSWER: Final = "<error>"
"""The value of the label `code` of a request that got no answer."""

REQUESTS = Counter(
    "rest_client_requests_total", "Requests to the API server", ("code", "method", "host"), registry=REGISTRY
)
REQUEST_DURATION = Histogram(
    "rest_client_request_duration_seconds", "How long requests took, watches excluded", ("verb", "host"),
    buckets=_DURATION_BUCKETS, registry=REGISTRY,
)  # fmt: skip
RATE_LIMITER_DURATION = Histogram(
    "rest_client_rate_limiter_duration_seconds", "How long requests waited for the limit of this client",
    ("verb", "host"), buckets=_DURATION_BUCKETS, registry=REGISTRY,
)  # fmt: skip
REQUEST_SIZE = Histogram(
    "rest_client_request_size_bytes", "How large the bodies of requests were", ("verb", "host"),
    buckets=_SIZE_BUCKETS, registry=REGISTRY,
)  # fmt: skip
RESPONSE_SIZE = Histogram(
    "rest_client_response_size_bytes", "How large the bodies of answers were, watches excluded", ("verb", "host"),
    buckets=_SIZE_BUCKETS, registry=REGISTRY,
)  # fmt: skip
DNS_DURATION = Histogram(
    "rest_client_dns_resolution_duration_seconds", "How long it took to resolve the name of the server", ("host",),
    buckets=_DURATION_BUCKETS, registry=REGISTRY,
)  # fmt: skip
RETRIES = Counter(
    "rest_client_request_retries_total", "Requests that were sent again", ("code", "verb", "host"), registry=REGISTRY
)
CONNECTIONS = Gauge(
    "trainmaster_client_connections", "Open connections to the API server", ("pool",), registry=REGISTRY
)

for _pool in ("request", "watch"):
    CONNECTIONS.labels(_pool)
