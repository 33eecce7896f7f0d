"""The time of the API server, which verifies the certificates of webhooks: ours may be wrong, or jump.

Guarantees:
- Once the server has told its time, by the header `Date` of an answer, only seconds are counted, by a clock that never
  goes back and does not stop while a machine is suspended: whoever sets the clock of this machine changes nothing.
- Before, and behind a proxy that drops the header, it is the time of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import structlog

from trainmaster.controller.kube.clock import Clock

log = structlog.get_logger(__name__)

TOLERANCE = timedelta(minutes=5)
"""By how much two machines may differ without a word about it."""


class ServerTime:
    """Tells the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: tuple[datetime, float] | None = None
        self._warned = False

    def observe(self, headers: Mapping[str, str]) -> None:
        """Take the time that an answer tells."""
        try:
            told = parsedate_to_datetime(headers.get("Date", ""))
        except (TypeError, ValueError):
            return
        told = told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
        self._told = told, self._clock.boottime()
        difference = self._clock.now() - told
        if abs(difference) <= TOLERANCE:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.warning(
                "the clock of this machine differs from that of the API server, which counts for certificates",
                seconds=round(difference.total_seconds()),
                hint="set the clock of the node, for instance by NTP",
            )

    def now(self) -> datetime:
        """Return the time in UTC."""
        if self._told is None:
            return self._clock.now()
        told, moment = self._told
        return told + timedelta(seconds=self._clock.boottime() - moment)
