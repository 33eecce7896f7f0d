"""The `rest_client_*` families under the names of client-go (K-10), connections, and the series of one client.

Guarantees:
- K-7: the series of all verbs exist from the start at zero, with the codes that any client meets, so that rates work
  from the first scrape.
"""

from __future__ import annotations

from typing import Final

from trainmaster.metrics.registry import REGISTRY, Children
from trainmaster.metrics.series import Counter, Gauge, Histogram

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
    "rest_client_request_retries_total",
    "Requests that were sent again: the server asked for it by Retry-After, or did not answer",
    ("code", "verb", "host"),
    registry=REGISTRY,
)
CONNECTIONS = Gauge(
    "trainmaster_client_connections", "Open connections to the API server", ("pool",), registry=REGISTRY
)

for _pool in ("request", "watch"):
    CONNECTIONS.labels(_pool)


_CODES: Final = {
    "GET": ("200", "404"),
    "POST": ("201", "409"),
    "PUT": ("200", "409"),
    "PATCH": ("200", "201", "409"),
    "DELETE": ("200", "404"),
}
"""What an API server usually answers to each verb, besides refusals that any of them may meet."""

METHODS: Final = tuple(_CODES)
_REFUSALS: Final = ("401", "403", "429", "500", "503", NO_ANSWER)
_RETRIED: Final = ("429", "500", "503", NO_ANSWER)


class RequestMetrics:
    """Counts and measures the requests of one client to one host."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._requests = Children(REQUESTS)
        self._retries = Children(RETRIES)
        self._durations = Children(REQUEST_DURATION)
        self._limits = Children(RATE_LIMITER_DURATION)
        self._request_sizes = Children(REQUEST_SIZE)
        self._response_sizes = Children(RESPONSE_SIZE)
        for method, codes in _CODES.items():
            for code in (*codes, *_REFUSALS):
                self._requests.create(code, method, host)
            for code in _RETRIED:
                self._retries.create(code, method, host)
            for family in (self._durations, self._limits, self._request_sizes, self._response_sizes):
                family.create(method, host)

    def request(self, method: str, *, code: str, size: int) -> None:
        """Count an attempt and the size of its body."""
        self._requests[code, method, self._host].inc()
        self._request_sizes[method, self._host].observe(size)

    def response(self, method: str, *, size: int) -> None:
        """Note the size of an answer that was read to its end."""
        self._response_sizes[method, self._host].observe(size)

    def duration(self, method: str, seconds: float) -> None:
        """Note how long an attempt took."""
        self._durations[method, self._host].observe(seconds)

    def limited(self, method: str, seconds: float) -> None:
        """Note how long a request waited for the limit of this client."""
        self._limits[method, self._host].observe(seconds)

    def retry(self, method: str, *, code: str) -> None:
        """Count a request that is sent again."""
        self._retries[code, method, self._host].inc()
