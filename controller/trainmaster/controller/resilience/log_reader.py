"""Reads parts of the logs of pods, for those who judge them.

Guarantees:
- A read takes at most `LARGEST_PART` bytes and `TIME_LIMIT` seconds, and all reads together are at most
  `READS_PER_SECOND`: who comes later waits, in order. `trainmaster_log_reads_total` counts them by what came of them.
- Of a line that is longer than a read its beginning comes; what else was written in its second is skipped.
- Each line comes once: where the part before ended is known by the time of its last line, and by how many lines of that
  time there were, since the server takes whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from trainmaster.controller.kube.clock import Clock, parse_time, time_text
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.controller.resilience.log_rules import LONGEST_LINE
from trainmaster.metrics.resilience import count_read
from trainmaster.runtime.api.constants import RESILIENCE_LABEL
from trainmaster.runtime.listers import Watch

LARGEST_PART: Final = 256 * 1024
READS_PER_SECOND: Final = 50.0
TIME_LIMIT: Final = 10.0

TAIL: Final = 200
"""Lines that are read where a log is written faster than it is read; what is before them is skipped."""


def policy_rules(watches: Iterable[Watch]) -> Iterator[PolicyRule]:
    """Return the rights that it takes where the pods of jobs with a resilience policy are watched."""
    if any(watch.plural == PODS.plural and RESILIENCE_LABEL in (watch.label_selector or "") for watch in watches):
        reason = "judge what TrainJobs write by the progress, logs and worldSize of their resilience policies"
        yield PolicyRule(
            resource=PODS, subresource="log", verbs=("get",), needed_by="resilience", reason=reason, optional=True
        )


class Position(NamedTuple):
    """Up to where a log was read."""

    at: datetime
    """The time of the last line."""

    lines: int = 1
    """How many lines have that time."""


class LogUnread(Exception):
    """A log cannot be read, for the reason that it tells."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error) or f"no answer within {TIME_LIMIT:.0f} s")
        self.is_forbidden = isinstance(error, Forbidden)


class LogPart(NamedTuple):
    """A part of a log."""

    lines: list[tuple[datetime, str]]
    """New ones, with the times at which they were written, by the clock of their node."""

    position: Position | None
    is_cut: bool = False
    """Whether there is more than was read."""


class LogReader:
    """Reads logs."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._limiter = RateLimiter(qps=READS_PER_SECOND, burst=int(READS_PER_SECOND), clock=clock)

    async def read(
        self, namespace: str, pod: str, container: str, *, after: Position | None, tail: int | None
    ) -> LogPart:
        """Read what a container has written, to the present end.

        Args:
            after: What was read before; None: nothing.
            tail: Read at most so many of the last lines.

        Raises:
            LogUnread: It cannot be read.
        """
        await self._limiter.wait()
        params = {"container": container, "timestamps": "true", "limitBytes": str(LARGEST_PART)}
        if after is not None:
            params["sinceTime"] = time_text(after.at)
        if tail is not None:
            params["tailLines"] = str(tail)
        content = bytearray()
        try:
            async with (
                self._clock.timeout(TIME_LIMIT),
                self._client.stream(PODS.path(namespace, pod, "log"), params) as chunks,
            ):
                async for chunk in chunks:
                    content += chunk
                    if len(content) >= LARGEST_PART:
                        break
        except (KubeError, TimeoutError) as error:
            count_read("failed")
            raise LogUnread(error) from error
        is_cut = len(content) >= LARGEST_PART
        count_read("cut" if is_cut else "read")
        return _part(bytes(content), after, is_cut=is_cut)


def _part(content: bytes, after: Position | None, *, is_cut: bool) -> LogPart:
    raws = content.split(b"\n")
    lines, position = _lines(raws[:-1] if is_cut else raws, after)
    if is_cut and not lines:  # the last line is longer than a read
        lines, position = _lines(raws, after)
        if position is not None:
            position = Position((position.at + timedelta(seconds=1)).replace(microsecond=0), 0)
    return LogPart(lines, position, is_cut)


def _lines(raws: Iterable[bytes], after: Position | None) -> tuple[list[tuple[datetime, str]], Position | None]:
    lines, position, skipped = [], after, 0
    for raw in raws:
        stamp, _, text = raw.partition(b" ")
        try:
            at = parse_time(stamp.decode("ascii")).astimezone(UTC)
        except (ValueError, OverflowError):
            continue  # the rest of the last line
        if after is not None and (at < after.at or (at == after.at and skipped < after.lines)):
            skipped += at == after.at
            continue
        position = Position(at, position.lines + 1 if position is not None and position.at == at else 1)
        lines.append((at, text[:LONGEST_LINE].decode("utf-8", "replace")))
    return lines, position
