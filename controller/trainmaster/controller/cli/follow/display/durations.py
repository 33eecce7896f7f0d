"""Times as people read them; pure."""

from __future__ import annotations

from datetime import datetime


def seconds_between(start: str | None, end: str | datetime | None) -> float | None:
    """Return the seconds between two times in RFC 3339, never less than 0; None if one is unknown or unreadable."""
    try:
        began = datetime.fromisoformat(start or "")
        ended = end if isinstance(end, datetime) else datetime.fromisoformat(end or "")
        return max(0.0, (ended - began).total_seconds())
    except (ValueError, TypeError):
        return None


def clock(seconds: float) -> str:
    """Write a duration: `0:42`, `1:02:03`, `2d 01:02`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02}:{minute:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minutes}:{second:02}"
