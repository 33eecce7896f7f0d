"""The rules of a resilience policy about the log: what a line means for them, and when they are broken. Pure.

Guarantees:
- Patterns are RE2's, which take time in proportion to what they read, and a line is cut at `LONGEST_LINE` bytes.
- A rule is broken at most once in an attempt.
- What was not read is not missed: `within` counts for nothing if the beginning of the log was not read.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from trainmaster.controller.redaction import redact
from trainmaster.runtime.api.meta import duration_seconds
from trainmaster.runtime.api.resilience import ALL, LogRule
from trainmaster.runtime.resilience import compile_pattern

LONGEST_LINE: Final = 4096
_QUOTED: Final = 200
"""Characters of a line in a message."""

compiled: Final[Any] = lru_cache(1024)(compile_pattern)
"""Jobs of one runtime share their patterns."""


class RuleState:
    """What is known of a rule in one attempt.

    Raises:
        ValueError: The pattern is no regular expression, or a duration is none.
    """

    def __init__(self, rule: LogRule) -> None:
        self.rule = rule
        self.broken = ""
        """How it was broken, in words; empty while it was not."""

        self.number: float | None = None
        """What the pattern captured last."""

        self.matched_at: datetime | None = None
        self._pattern = compiled(rule.pattern)
        self._within = seconds(rule.within)
        self._every = seconds(rule.every)

    @property
    def limits(self) -> tuple[timedelta | None, timedelta | None]:
        """What it says of time."""
        return self._within, self._every

    @property
    def is_of_all(self) -> bool:
        """Whether it is about the logs of all nodes."""
        return self.rule.from_ == ALL

    @property
    def is_needed(self) -> bool:
        """Whether lines still mean something to it."""
        is_met = self.matched_at is not None and self._within is not None and self._every is None
        return self.captures or not (self.broken or is_met)

    @property
    def captures(self) -> bool:
        """Whether its pattern captures a number."""
        return bool(self._pattern.groups)

    def take(self, line: str, at: datetime, who: str) -> bool:
        """Take note of a line; return whether it captures another number than before."""
        match = self._pattern.search(line)
        if match is None:
            return False
        self.matched_at = at
        if self._within is None and self._every is None and not self.broken:
            self.broken = f'{who} wrote what must not appear: "{redact(line)[:_QUOTED]}"'
        before, self.number = self.number, _number(match[1]) if self.captures else None
        return self.number is not None and self.number != before

    def deadline(self, *, running_since: datetime | None, is_whole: bool) -> datetime | None:
        """Return when it is broken unless the pattern appears; None if it cannot be, as far as is known.

        Args:
            running_since: When all pods ran; None if they do not yet.
            is_whole: Whether everything was read that was written since.
        """
        if self.broken:
            return None
        if self.matched_at is not None:
            return self.matched_at + self._every if self._every is not None else None
        if self._within is None or running_since is None or not is_whole:
            return None
        return running_since + self._within

    def miss(self) -> None:
        """Note that the deadline has passed."""
        what = f"/{self.rule.pattern}/ did not appear"
        if self.matched_at is None:
            self.broken = f"{what} within {self.rule.within} after all pods ran"
        else:
            self.broken = f"{what} again within {self.rule.every}"


def seconds(text: str | None) -> timedelta | None:
    """Return how long a duration of a policy is; None if there is none."""
    return None if text is None else timedelta(seconds=duration_seconds(text))


def _number(text: str | None) -> float | None:
    """Read a captured number; what is none, or not finite, counts for nothing."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
