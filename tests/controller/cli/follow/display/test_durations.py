"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trainmaster.controller.cli.follow.display.durations import clock, seconds_between


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (59.9, "0:59"),
        (83, "1:23"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (3723, "1:02:03"),
        (90000, "1d 01:00"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_seconds_between_times_of_servers() -> None:
    """Clocks differ: nothing lasts less than no time."""
    assert seconds_between("2024-01-01T00:00:00Z", "2024-01-01T00:01:23Z") == 83
    assert seconds_between("2024-01-01T00:00:00Z", datetime(2024, 1, 1, 0, 0, 5, tzinfo=UTC)) == 5
    assert seconds_between("2024-01-01T00:00:09Z", "2024-01-01T00:00:00Z") == 0
    for start, end in ((None, "2024-01-01T00:00:00Z"), ("2024-01-01T00:00:00Z", None), ("soon", "later"), ("", "")):
        assert seconds_between(start, end) is None
    assert seconds_between("2024-01-01T00:00:00", "2024-01-01T00:00:00Z") is None, "one has no time zone"
