"""How many writes the server should have at once: a limit that is found from how long its answers take.

Guarantees:
- The limit grows while answers take about as long as those that the server gave with few requests at once, and shrinks
  when they take longer, because more requests then only wait there. It settles where a third of them wait: the server
  is never without work, and nothing waits for long.
- Slow answers never take it below `INITIAL`: nobody is worse off than with a fixed number.
- A refusal for overload (429, 503, 504) or a request that ran into its timeout takes a third of it, down to `MINIMUM`;
  from then on it grows by steps of one.
- Every `PERIOD` seconds it starts over, from `INITIAL` at most: a server that has become slower, or faster, or that
  refuses no more, is found out.
- It moves by windows of many answers, never by a single one, and does not grow while it is not made use of.

It counts and advises; nobody waits here. Who has work to hand out (`reconciling.controller`) keeps within it, so what
waits does so in the work queue, in the order of its priorities.
"""

from __future__ import annotations

import math
from typing import Final

INITIAL: Final = 16
"""What any API server does with."""

MINIMUM: Final = 4
"""Even a server with one core answers some at a time: one reads while another one waits for the disk."""

MAXIMUM: Final = 64
"""More brought nothing anywhere, and reads and events need connections too."""

PERIOD: Final = 30.0
"""Seconds."""

_OVERLOADED: Final = frozenset({None, 429, 503, 504})

_WINDOW: Final = 20
"""Answers, to requests that were sent in it; or as many as the limit."""

_TOLERANCE: Final = 1.5
"""Times the usual time: an answer that takes as long leaves the limit as it is, since a third of it was waiting."""

_AFTER_OVERLOAD: Final = 2 / 3


class ConcurrencyLimit:
    """The limit of one client; times are those of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self._limit = float(INITIAL)
        self._start_over(now)

    @property
    def limit(self) -> int:
        """How many writes the server should have at once."""
        return int(self._limit)

    def answered(self, *, sent: float, now: float, status: int | None) -> None:
        """Take note of the answer to a write, with its HTTP status; None: there was none in time."""
        if sent < self._window_began:
            return  # it tells of the limit before
        self._answers += 1
        self._seconds += now - sent
        self._overloaded |= status in _OVERLOADED
        if self._answers >= max(_WINDOW, self._limit):
            self._end_window(now)

    def _start_over(self, now: float) -> None:
        self._limit = min(self._limit, INITIAL)
        self._usual = math.inf
        """Mean seconds of an answer in the best window."""

        self._cautious = False
        """Whether there was an overload."""

        self._started = now
        self._begin_window(now)

    def _begin_window(self, now: float) -> None:
        self._window_began = now
        self._answers = 0
        self._seconds = 0.0
        self._overloaded = False

    def _end_window(self, now: float) -> None:
        if self._overloaded:
            self._cautious = True
            self._limit = max(MINIMUM, self._limit * _AFTER_OVERLOAD)
        elif now - self._started >= PERIOD:
            self._start_over(now)
        else:
            mean = self._seconds / self._answers
            self._usual = min(self._usual, mean)
            # Little's law: so many of these requests were on their way at a time, and at first those of before.
            if mean and self._seconds >= self._limit / 4 * (now - self._window_began):
                self._adapt(mean)
        self._begin_window(now)

    def _adapt(self, mean: float) -> None:
        limit = self._limit * _TOLERANCE * self._usual / mean
        if self._cautious:
            limit = min(limit, self._limit + 1)
        self._limit = min(MAXIMUM, max(limit, min(self._limit, INITIAL)))
