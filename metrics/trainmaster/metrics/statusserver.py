"""The families of the status server, to which trainers report.

Guarantee: the series of all usual codes and outcomes are there from the start: rates work from the first scrape.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter, Gauge, Histogram

ReviewOutcome: TypeAlias = Literal["accepted", "refused", "failed"]
"""What became of the review of a token by the API server."""

USUAL_CODES: Final = (200, 403, 404, 408, 413, 422, 429, 500)

REPORTS = Counter(
    "trainmaster_progress_reports_total", "Requests to the status server by HTTP status code", ("code",),
    registry=REGISTRY,
)  # fmt: skip
DURATION = Histogram(
    "trainmaster_progress_report_duration_seconds",
    "How long it took to answer a request to the status server, waits for its own rate limit included",
    registry=REGISTRY,
)
IN_FLIGHT = Gauge(
    "trainmaster_progress_reports_in_flight", "Requests to the status server that are being answered", registry=REGISTRY
)
REVIEWS = Counter(
    "trainmaster_progress_token_reviews_total", "Tokens that the API server was asked about, by what it said",
    ("outcome",), registry=REGISTRY,
)  # fmt: skip

for _code in USUAL_CODES:
    REPORTS.labels(str(_code))
for _outcome in get_args(ReviewOutcome):
    REVIEWS.labels(_outcome)


def observe(code: int, seconds: float) -> None:
    """Count a response, which took so many seconds."""
    REPORTS.labels(str(code)).inc()
    DURATION.observe(seconds)


def count_review(outcome: ReviewOutcome) -> None:
    """Count a review."""
    REVIEWS.labels(outcome).inc()
