"""The log of a container, through all its runs, in lines that are delivered once each.

- It is read to the end of the last run. What breaks is opened again: the server is asked for the lines from the last
  time on, and for times, so that none is delivered twice. Nothing is counted in bytes, since the log may be that of
  another run by then, or may have been rotated.
- The first look at a log is a single request, over a connection that is there already: a stream takes a new one, and by
  the time that stands, the pod may have been deleted, since another one failed.
- Before the log of a new run is opened, the end of that of the run before is read once more.
- Lines of any length are delivered, very long ones in pieces; of what is drawn over for hours the last state. What no
  newline has ended is shown as it grows, and delivered when the log is closed.
- The last lines are kept, with their times.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from http import HTTPStatus
from typing import Final

from trainmaster.controller.cli.follow.job_status import container_attempt
from trainmaster.controller.explain.pods import has_ended
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    KubeError,
    ServerError,
    TooManyRequests,
    from_response,
)
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.jsontree import JsonObject

KEPT_LINES: Final = 200
"""Of the end of each log; a traceback through libraries for training has a hundred and more."""

_KEPT_LENGTH: Final = 2000
_PIECE: Final = 64 * 1024
_SECONDS: Final = len("2026-01-01T00:00:00")
_NANOSECONDS: Final = 9
_STAMP: Final = re.compile(
    r"(\d{4}-(?:0\d|1[0-2])-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ", re.ASCII
)
_BROKEN_STAMP: Final = re.compile(rb"\d{1,4}(?:-[0-9T:.Z+-]*)?")
"""What there is of a time when a log breaks off within."""

_GLANCE: Final = str(2**20)
"""Bytes."""

_LOOK_EVERY: Final = 1.0
"""Seconds after which a log is opened again that broke without news of its pod."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a log is wanted, and how it is shown."""

    tail: int | None = None
    """How many of the lines that are there already; None: all."""

    since_seconds: int | None = None
    """How old they may be; None: of any age."""

    timestamps: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all of it is wanted."""
        return self.tail is None and self.since_seconds is None


EVERYTHING: Final = LogOptions()


class LogLines:
    """The lines of the log of one container, of one run after the other.

    `deliver` takes complete lines, as many as have arrived at once; None if only the end of the log is of interest.
    `partial` takes the last line as it stands while no newline has ended it; empty when there is none. With `is_tail`
    there may be lines before the first one, of its time as well.
    """

    def __init__(
        self,
        deliver: Callable[[list[str]], None] | None = None,
        partial: Callable[[str], None] = lambda _: None,
        *,
        is_tail: bool = False,
        with_times: bool = False,
    ) -> None:
        self._deliver = deliver
        self._with_times = with_times
        self._partial = partial
        self._kept: deque[tuple[str, str]] = deque(maxlen=KEPT_LINES)
        self._rest = b""
        self._shown = ""
        self._last = ""
        """The time of the last line."""

        self._at_last = math.inf if is_tail else 0
        """How many lines were of that time: a runtime reads several at once."""

        self._reopened = False
        self._again: int | None = None
        """How many lines of that time came again so far; None if nothing comes again any more."""

    @property
    def is_delivered(self) -> bool:
        """Whether more than the end of the log is of interest."""
        return self._deliver is not None

    @property
    def since(self) -> str | None:
        """From when on the log has to be read again, to the second, as the API takes it; None: from its beginning."""
        return f"{_sortable(self._last)[:_SECONDS]}Z" if self._last else None

    def reopen(self) -> None:
        """Expect lines that were delivered already."""
        self._reopened = True
        self._again = 0 if self._last else None

    def feed(self, chunk: bytes) -> None:
        """Take what has arrived."""
        if self._reopened:
            self._reopened, self._rest = False, b""  # it comes again
        complete, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        if newline:
            self._take(complete)
        if len(self._rest) > _PIECE and b"\r" in self._rest:
            self._rest = self._rest.partition(b" ")[0] + b" " + self._rest[self._rest.rindex(b"\r") :]
        if len(self._rest) > _PIECE:
            self._take(self._rest)
            self._rest = b""
        self._show_rest()

    def close(self) -> None:
        """Deliver what no newline has ended."""
        if self._reopened:
            self._again = None  # nothing has come again, so that the rest is what it was
        if self._rest and not _BROKEN_STAMP.fullmatch(self._rest):
            self._take(self._rest)
        self._rest = b""
        self._show_rest()

    def between(self, since: str, until: str) -> list[str]:
        """Return what is kept of the lines from one second to another, both included; RFC 3339 in UTC."""
        return [
            line
            for stamp, line in self._kept
            if not stamp or since[:_SECONDS] <= _sortable(stamp)[:_SECONDS] <= until[:_SECONDS]
        ]

    def _take(self, data: bytes) -> None:
        new = []
        for stamp, line in _split(data):
            if self._came_before(stamp):
                self._again = (self._again or 0) + (bool(stamp) and _sortable(stamp) == _sortable(self._last))
                continue
            self._again = None
            if stamp:
                self._at_last = self._at_last + 1 if stamp == (self._last or stamp) else 1
                self._last = stamp
            new.append((stamp, line))
        self._kept.extend((stamp, line[:_KEPT_LENGTH]) for stamp, line in new[-KEPT_LINES:])
        if new and self._deliver is not None:
            self._deliver([f"{stamp} {line}" if self._with_times else line for stamp, line in new])

    def _came_before(self, stamp: str) -> bool:
        """Return whether a line was delivered before the log was opened again."""
        if self._again is None:
            return False
        return not stamp or (_sortable(stamp), self._again) < (_sortable(self._last), self._at_last)

    def _show_rest(self) -> None:
        text = ""
        if self._rest and self._deliver is not None:
            [(stamp, line)] = _split(self._rest)
            text = line if stamp and not self._came_before(stamp) else ""
        if text != self._shown:
            self._shown = text
            self._partial(text)


def _split(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the lines with their times; what a server has put in between has none."""
    for line in data.decode("utf-8", "replace").split("\n"):
        found = _STAMP.match(line)
        yield (found[1], line[found.end() :].removesuffix("\r")) if found else ("", line.removesuffix("\r"))


def _sortable(stamp: str) -> str:
    """Write a time in UTC and with all its digits, so that the order of texts is that of times."""
    fraction, zone = "", stamp[_SECONDS:]
    if zone.startswith("."):
        digits = len(zone) - len(zone[1:].lstrip("0123456789"))
        fraction, zone = zone[1:digits], zone[digits:]
    seconds = stamp[:_SECONDS]
    if zone not in {"Z", "+00:00"}:
        moment = datetime.fromisoformat(seconds + zone)
        seconds = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{fraction.ljust(_NANOSECONDS, '0')}"


class _End(Enum):
    COMPLETE = "the server had no more"
    BROKEN = "the connection broke"
    ABSENT = "there is nothing to read yet"
    GONE = "the pod is gone, or we may not read"


class PodLog:
    """The log of one container of one pod.

    With the `uid` of its pod an embedded cluster has the logs of deleted ones too; others look at the name alone.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        pod: str,
        container: str,
        lines: LogLines,
        options: LogOptions = EVERYTHING,
        uid: str | None = None,
    ) -> None:
        self._client = client
        self._path = PODS.path(namespace, pod, "log")
        self.container = container
        self._beginning = {"tailLines": options.tail, "sinceSeconds": options.since_seconds, "uid": uid}
        self._changed = asyncio.Event()
        self._is_closed = False
        self.lines = lines
        self.pod: JsonObject | None = None
        """As it was seen last; None once it is deleted."""

        self.refusal: str | None = None
        """What the server said if we may not read it."""

        self.is_lost = False
        """Whether the pod was gone before anything could be read."""

        self.received: int | None = None
        """Bytes, so far; None if it could not be read yet."""

    def observe(self, pod: JsonObject | None) -> None:
        """Take the state of the pod; None: it is deleted."""
        self.pod = pod
        self._changed.set()

    def close(self) -> None:
        """Take note that no other run is wanted."""
        self._is_closed = True
        self._changed.set()

    async def follow(self) -> None:
        """Read until the last run has ended, as its pod comes to have runs of it."""
        opened: int | None = None
        try:
            while True:
                run, is_last = before = self._run()
                if run is None and is_last:
                    return
                if run is not None:
                    if opened is None and self.lines.is_delivered and not self.received:
                        await self.glance()
                    elif opened is not None and run > opened:
                        # Its end may have been missed, as the connection was broken or the restart not known yet.
                        await self._read(previous=True)
                        self.lines.close()
                    end = await self._read(follow=True)
                    if end is _End.GONE or (end is not _End.BROKEN and is_last):
                        return
                    if end is not _End.ABSENT:
                        opened = run
                if self._run() == before:
                    await self._wait()
        finally:
            self.lines.close()

    def _run(self) -> tuple[int | None, bool]:
        """Return which run has a log that can be read, None if none has, and whether there will be no other."""
        if self.pod is None:
            return None, True
        return container_attempt(self.pod, self.container), self._is_closed or has_ended(self.pod)

    async def _wait(self) -> None:
        """Wait until the pod says something else, and not for ever: a connection may break without that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY):
                await self._changed.wait()
        self._changed.clear()

    async def _read(self, *, follow: bool = False, previous: bool = False) -> _End:
        params = self._params(follow="true" if follow else None, previous="true" if previous else None)
        self.lines.reopen()
        try:
            async with self._client.stream(self._path, params) as chunks:
                self.received = self.received or 0
                async for chunk in chunks:
                    self.received += len(chunk)
                    self.lines.feed(chunk)
        except (ServerError, TooManyRequests):
            return _End.BROKEN
        except BadRequest:
            return _End.ABSENT
        except ApiError as error:
            if isinstance(error, Forbidden):
                self.refusal = str(error)
            elif not self.received:
                self.is_lost = True
            return _End.GONE
        except KubeError:
            return _End.BROKEN
        return _End.COMPLETE

    async def glance(self, *, previous: bool = False) -> None:
        """Read the beginning of what there is at once; nothing if it cannot be had."""
        params = self._params(limitBytes=_GLANCE, previous="true" if previous else None)
        with contextlib.suppress(KubeError):
            status, _, body = await self._client.raw("GET", self._path, params=params, accept="*/*")
            if status == HTTPStatus.OK:
                self.received = (self.received or 0) + len(body)
                self.lines.feed(body)
            elif status == HTTPStatus.FORBIDDEN:
                self.refusal = str(from_response(status, {}, body, request=f"GET {self._path}"))

    def _params(self, **wanted: str | None) -> dict[str, str]:
        params = {"container": self.container, "timestamps": "true"}
        if (since := self.lines.since) is not None:
            params["sinceTime"] = since
        else:
            params |= {name: str(value) for name, value in self._beginning.items() if value is not None}
        return params | {name: value for name, value in wanted.items() if value is not None}


async def last_lines(
    client: KubeClient,
    *,
    namespace: str,
    pod: str,
    container: str,
    previous: bool,
    since: str,
    until: str,
) -> list[str]:
    """Return the last lines of a run of a container; none if they cannot be read any more.

    `since` and `until` are when the run started and ended, RFC 3339: the log may be that of yet another run by now.
    """
    log = PodLog(
        client, namespace=namespace, pod=pod, container=container, lines=LogLines(), options=LogOptions(KEPT_LINES)
    )
    await log.glance(previous=previous)
    log.lines.close()
    return log.lines.between(since, until)
