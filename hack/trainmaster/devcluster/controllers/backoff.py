"""Exponential backoff: the pause before the next attempt doubles with each failure, up to a cap."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_EXPONENT = 30  # beyond it every pause is longer than any sensible cap, and the power stays a small number


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """How long to wait before trying again."""

    base: float
    """Seconds after the first failure; 0: never any."""

    cap: float
    """The longest pause, in seconds."""

    def after(self, failures: int) -> float:
        """Return the seconds to wait after a number of failures in a row, which is at least one."""
        return min(self.base * float(2 ** min(failures - 1, _MAX_EXPONENT)), self.cap)


NO_BACKOFF = ExponentialBackoff(base=0.0, cap=0.0)
"""For tests, and for who wants every attempt at once."""
