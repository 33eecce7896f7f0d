"""Times and durations as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from trainmaster.devcluster.apiserver.registry.times import age, human_duration, timestamp


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (19920, "5h32m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (176400, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (731 * 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_for_people(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_times_are_written_in_utc() -> None:
    moment = datetime(2026, 1, 1, 1, 0, 0, 999999, tzinfo=timezone(timedelta(hours=2)))
    assert timestamp(moment) == "2025-12-31T23:00:00Z"
    assert age("2025-12-31T23:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)) == "60m"
    assert age(None, moment) == "<unknown>"
