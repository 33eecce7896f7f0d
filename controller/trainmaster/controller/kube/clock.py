"""Time and randomness as arguments: whatever in this package waits, measures, expires or draws lots gets them passed.

Also how the API writes times (`metav1.Time` and `metav1.MicroTime`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

# Linux has a clock that counts suspended time; on macOS the monotonic one of Python is the best there is.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Random: TypeAlias = Callable[[], float]
"""A source of numbers in [0, 1), as `random.random`."""


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Forget the call; harmless when it was made already."""


class Clock(Protocol):
    """What this package needs of time."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def boottime(self) -> float:
        """Seconds since some fixed moment, those included for which the machine was suspended; never goes back."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`; zero lets other tasks run."""

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` at `when` of `monotonic`."""

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[Any]:
        """Cancel the block after `seconds` and raise `TimeoutError` in its place."""


class SystemClock:
    """The time of the machine and of the running event loop."""

    # Without a frame of its own: it is asked dozens of times for each object.
    monotonic = staticmethod(time.monotonic)

    def boottime(self) -> float:
        """Seconds since some fixed moment, those included for which the machine was suspended; never goes back."""
        return time.clock_gettime(_BOOTTIME)

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`; zero lets other tasks run."""
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` at `when` of `monotonic`."""
        return asyncio.get_running_loop().call_later(max(0.0, when - time.monotonic()), callback)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[Any]:
        """Cancel the block after `seconds` and raise `TimeoutError` in its place."""
        return asyncio.timeout(seconds)


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time, also in the spellings of other writers; one without an offset is in UTC.

    Raises:
        ValueError: It is no time.
    """
    moment = datetime.fromisoformat(text.upper())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def seconds_until(start: str | None, seconds: float, now: datetime) -> float | None:
    """Return the seconds until so many have passed since a time in RFC 3339; None if that is unknown or unreadable."""
    try:
        # In seconds, because the calendar may end before that.
        return seconds - (now - parse_time(start or "")).total_seconds()
    except (AttributeError, ValueError):
        return None


def time_text(moment: datetime) -> str:
    """Write a time as the API's Time: to the second, so that those of one zone compare as texts."""
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}Z"


def micro_time(moment: datetime) -> str:
    """Write a time as the API's MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_between(start: str | None, end: str | datetime | None) -> float | None:
    """Return the seconds between two times in RFC 3339, never less than 0; None if one is unknown or unreadable."""
    try:
        began = datetime.fromisoformat(start or "")
        ended = end if isinstance(end, datetime) else datetime.fromisoformat(end or "")
        return max(0.0, (ended - began).total_seconds())
    except (ValueError, TypeError):
        return None
