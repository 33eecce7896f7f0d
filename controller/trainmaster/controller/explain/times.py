"""Times as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def parse_time(text: Any) -> datetime | None:
    """Return the moment that a timestamp of the API means (RFC 3339); None for anything else."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
