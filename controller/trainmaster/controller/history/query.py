"""What somebody asks of the history; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from trainmaster.controller.history.record import RESULTS
from trainmaster.controller.kube.clock import parse_time

PATH: Final = "/history/v1/jobs"
"""Under which a manager answers queries."""

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 500
_LONGEST: Final = 253

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PARAMETERS: Final = ("namespace", "name", "runtime", "result", "cause", "since", "limit", "continue")


class InvalidQuery(ValueError):
    """What is asked makes no sense; the text says which word of it, and how it is written."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the list of ended jobs: behind the one that ended then."""

    ended: int
    """Seconds since 1970."""

    uid: str

    def __str__(self) -> str:
        return f"{self.ended}:{self.uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which ended jobs; those that ended last come first."""

    namespaces: Collection[str] | None = None
    """Only those in these namespaces; None: all."""

    name: str = ""
    runtime: str = ""
    result: str = ""
    cause: str = ""
    since: datetime | None = None
    """Only those that have ended then or later."""

    limit: int = DEFAULT_LIMIT
    after: Position | None = None


def read_query(parameters: Mapping[str, str], *, now: datetime) -> Query:
    """Read the parameters of a request.

    Raises:
        InvalidQuery: One is unknown or wrong.
    """
    for name, value in parameters.items():
        if name not in _PARAMETERS:
            raise InvalidQuery(f"unknown parameter {name!r}; known are {', '.join(_PARAMETERS)}")
        if len(value) > _LONGEST + 32 or "\0" in value:
            raise InvalidQuery(f"{name} is longer than any such name")
    result = parameters.get("result", "")
    chosen = next((each for each in RESULTS if each.lower() == result.lower()), "")
    if result and not chosen:
        raise InvalidQuery(f"result must be one of {', '.join(RESULTS)}, got {result!r}")
    namespace, since = parameters.get("namespace"), parameters.get("since")
    return Query(
        namespaces=(namespace,) if namespace else None,
        name=parameters.get("name", ""),
        runtime=parameters.get("runtime", ""),
        result=chosen,
        cause=parameters.get("cause", ""),
        since=read_since(since, now=now) if since else None,
        limit=_limit(parameters.get("limit", "")),
        after=_position(parameters.get("continue", "")),
    )


def read_since(text: str, *, now: datetime) -> datetime:
    """Read a moment, or how long ago it was: `2026-01-31T12:00:00Z`, `2026-01-31`, `90m`, `7d`.

    Raises:
        InvalidQuery: It is neither.
    """
    if parts := re.fullmatch(r"(\d{1,6})([smhdw])", text):
        seconds = int(parts[1]) * _UNITS[parts[2]]
        try:
            return now - timedelta(seconds=seconds)
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    try:
        return parse_time(text)
    except ValueError as error:
        raise InvalidQuery(
            f"since must be how long ago, 90m or 7d say, or a time, for instance 2026-01-31T12:00:00Z; got {text!r}"
        ) from error


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidQuery(f"limit must be a whole number from 1 to {MAX_LIMIT}, got {text!r}")
    return int(text)


def _position(text: str) -> Position | None:
    if not text:
        return None
    ended, _, uid = text.partition(":")
    if not (ended.isascii() and ended.isdecimal() and len(ended) < 14 and uid):
        raise InvalidQuery("continue must be what the answer before this one had")
    return Position(int(ended), uid)
