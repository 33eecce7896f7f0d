"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from trainmaster.controller.cli.follow.display.durations import clock, seconds_between


def test_durations() -> None:
    seconds = (0, 59.9, 83, 3599, 3600, 3723, 90000)
    assert [clock(each) for each in seconds] == ["0:00", "0:59", "1:23", "59:59", "1:00:00", "1:02:03", "1d 01:00"]


def test_seconds_between_times_of_servers() -> None:
    """Clocks differ: nothing lasts less than no time."""
    assert seconds_between("2024-01-01T00:00:00Z", "2024-01-01T00:01:23Z") == 83
    assert seconds_between("2024-01-01T00:00:00Z", datetime(2024, 1, 1, 0, 0, 5, tzinfo=UTC)) == 5
    assert seconds_between("2024-01-01T00:00:09Z", "2024-01-01T00:00:00Z") == 0
    for start, end in ((None, "2024-01-01T00:00:00Z"), ("2024-01-01T00:00:00Z", None), ("soon", "later"), ("", "")):
        assert seconds_between(start, end) is None
    assert seconds_between("2024-01-01T00:00:00", "2024-01-01T00:00:00Z") is None, "one has no time zone"
