"""The `rest_client_*` series of one client (K-10).

Guarantees:
- K-7: the series of all verbs exist from the start at zero, with the codes that any client meets, so that rates work
  from the first scrape.
"""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import rest_client as metrics
from trainmaster.metrics.children import Children

_CODES: Final = {
    "GET": ("200", "404"),
    "POST": ("201", "409"),
    "PUT": ("200", "409"),
    "PATCH": ("200", "201", "409"),
    "DELETE": ("200", "404"),
}
"""What an API server usually answers to each verb, besides refusals that any of them may meet."""

_REFUSALS: Final = ("401", "403", "429", "500", "503", metrics.NO_ANSWER)
_RETRIED: Final = ("429", "500", "503", metrics.NO_ANSWER)


class RequestMetrics:
    """Counts and measures the requests of one client to one host."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._requests = Children(metrics.REQUESTS)
        self._retries = Children(metrics.RETRIES)
        self._durations = Children(metrics.REQUEST_DURATION)
        self._limits = Children(metrics.RATE_LIMITER_DURATION)
        self._request_sizes = Children(metrics.REQUEST_SIZE)
        self._response_sizes = Children(metrics.RESPONSE_SIZE)
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
