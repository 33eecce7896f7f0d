"""Times as the API writes them, and as others do."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time, also in the spellings of other writers; one without an offset is in UTC.

    Raises:
        ValueError: It is no time.
    """
    moment = datetime.fromisoformat(text.upper())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def micro_time(moment: datetime) -> str:
    """Write a time as the API's MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
