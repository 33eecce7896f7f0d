"""The families of admission webhooks and of their certificates, under the names of controller-runtime.

Guarantees:
- K-9: the label `webhook` is the path; the codes 200 and 500 of every path are there from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter, Gauge, Histogram

LATENCY = Histogram(
    "controller_runtime_webhook_latency_seconds", "How long admission requests took", ("webhook",), registry=REGISTRY
)
REQUESTS = Counter(
    "controller_runtime_webhook_requests_total", "Admission requests by HTTP status code", ("webhook", "code"),
    registry=REGISTRY,
)  # fmt: skip
IN_FLIGHT = Gauge(
    "controller_runtime_webhook_requests_in_flight", "Admission requests that are being answered", ("webhook",),
    registry=REGISTRY,
)  # fmt: skip
PANICS = Counter(
    "controller_runtime_webhook_panics_total", "Admission requests that failed unexpectedly", registry=REGISTRY
)
CONVERSION_PANICS = Counter(
    "controller_runtime_conversion_webhook_panics_total",
    "Conversion requests that failed unexpectedly; there is no conversion, so it stays at zero",
    registry=REGISTRY,
)
CERTIFICATE_READS = Counter(
    "certwatcher_read_certificate_total", "How often certificates were read from their files", registry=REGISTRY
)
CERTIFICATE_ERRORS = Counter(
    "certwatcher_read_certificate_errors_total", "How often certificates that were read could not be used",
    registry=REGISTRY,
)  # fmt: skip


class WebhookMetrics:
    """The series of one webhook; whoever serves it calls these methods and knows no name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._latency = LATENCY.labels(path)
        self._in_flight = IN_FLIGHT.labels(path)
        for code in (200, 500):
            REQUESTS.labels(path, str(code))

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure the block, in which one request is answered."""
        started = perf_counter()
        with self._in_flight.track_inprogress():
            try:
                yield
            finally:
                self._latency.observe(perf_counter() - started)

    def count(self, code: int) -> None:
        """Count a response."""
        REQUESTS.labels(self._path, str(code)).inc()
