"""Times as Kubernetes writes them for machines and for people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""Tells the present time, with a time zone."""

_UNITS = (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def timestamp(moment: datetime) -> str:
    """Write a moment in UTC and whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def human_duration(seconds: float) -> str:
    """Write a duration as kubectl does: exact when short, coarse when long, never more than two units."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    # Up to these limits the smaller unit is shown as well: 119s, 7m5s, 23m, 5h12m, 40h, 3d4h, 90d, 3y12d, 8y.
    if whole < 120:
        return f"{whole}s"
    for limit, larger, smaller in (
        (10 * 60, "m", "s"),
        (3 * 3600, "m", ""),
        (8 * 3600, "h", "m"),
        (48 * 3600, "h", ""),
        (8 * 86400, "d", "h"),
        (2 * 365 * 86400, "d", ""),
        (8 * 365 * 86400, "y", "d"),
    ):
        if whole < limit:
            return _two_units(whole, larger, smaller)
    return _two_units(whole, "y", "")


def age(text: str | None, now: datetime) -> str:
    """Write how long ago a time stamp was."""
    if not text:
        return "<unknown>"
    return human_duration((now - datetime.fromisoformat(text)).total_seconds())


def _two_units(seconds: int, larger: str, smaller: str) -> str:
    sizes = dict(_UNITS)
    count, rest = divmod(seconds, sizes[larger])
    second = rest // sizes[smaller] if smaller else 0
    return f"{count}{larger}{second}{smaller}" if second else f"{count}{larger}"
