"""The time of the API server, on machines whose clocks are wrong or jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from structlog.testing import capture_logs
from support.virtualtime import VirtualClock

from trainmaster.controller.certificates.server_time import ServerTime

THEIRS = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
DATE = {"Date": "Fri, 01 May 2026 12:00:00 GMT"}


class Jumping(VirtualClock):
    """A clock that somebody sets."""

    def __init__(self) -> None:
        super().__init__(start=THEIRS)
        self.wrong = timedelta()

    def now(self) -> datetime:
        return super().now() + self.wrong


def test_until_it_is_told_it_is_the_time_of_this_machine() -> None:
    clock = Jumping()
    time = ServerTime(clock)
    for headers in ({}, {"Date": ""}, {"Date": "yesterday"}, {"Date": "99 Foo 2026"}):
        time.observe(headers)
        assert time.now() == clock.now()


async def test_a_clock_that_is_set_forward_or_back_changes_nothing() -> None:
    clock = Jumping()
    time = ServerTime(clock)
    time.observe(DATE)
    for jump in (timedelta(days=4000), timedelta(days=-4000)):
        clock.wrong = jump
        assert time.now() == THEIRS
    await clock.advance(3600)
    assert time.now() == THEIRS + timedelta(hours=1)


def test_a_clock_that_differs_is_told_once_until_it_is_right() -> None:
    clock = Jumping()
    time = ServerTime(clock)
    with capture_logs() as logs:
        clock.wrong = timedelta(minutes=4)
        time.observe(DATE)
        for minutes in (-90, -90, 0, 90):
            clock.wrong = timedelta(minutes=minutes)
            time.observe(DATE)
    assert [each["seconds"] for each in logs] == [-5400, 5400]
