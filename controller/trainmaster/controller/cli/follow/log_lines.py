"""Cuts a log that comes with times into lines: each is delivered once, however often the log is opened again.

- Lines of any length are delivered, very long ones in pieces; of what is drawn over for hours the last state.
- What no newline has ended is shown as it grows, and delivered when the log is closed.
- The last lines are kept, with their times.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

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


class LogLines:
    """The lines of the log of one container, of one run after the other.

    Args:
        deliver: Takes complete lines, as many as have arrived at once; None if only the end of the
            log is of interest.
        partial: Takes the last line as it stands while no newline has ended it; empty when there is none.
        is_tail: Whether the log is read from its end only, so that there may be lines before the first one.
        with_times: Whether lines are delivered with their times.
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
        self._is_piece = False
        """Whether the beginning of the line that comes next was delivered already."""

        self._last = ""
        """The time of the last line."""

        self._at_last = 0
        """How many lines were of that time: a runtime reads several at once."""

        self._may_be_more = is_tail
        """Whether there may be lines of that time that were never seen."""

        self._reopened = False
        self._skipped: int | None = None
        """How many lines of that time came again so far; None if nothing is skipped any more."""

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
        self._skipped = 0 if self._last else None

    def feed(self, chunk: bytes) -> None:
        """Take what has arrived."""
        if self._reopened:
            self._reopened = self._is_piece = False
            self._rest = b""  # it comes again
        complete, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        if newline:
            self._take(complete)
        if len(self._rest) > _PIECE and b"\r" in self._rest:
            stamp = b"" if self._is_piece else self._rest.partition(b" ")[0] + b" "
            self._rest = stamp + self._rest[self._rest.rindex(b"\r") :]
        if len(self._rest) > _PIECE:
            self._take(self._rest)
            self._rest, self._is_piece = b"", True
        self._show_rest()

    def close(self) -> None:
        """Deliver what no newline has ended."""
        if self._reopened:
            self._skipped = None  # nothing has come again, so that the rest is what it was
        if self._rest and (self._is_piece or not _BROKEN_STAMP.fullmatch(self._rest)):
            self._take(self._rest)
        self._rest, self._is_piece = b"", False
        self._show_rest()

    def between(self, since: str, until: str) -> list[str]:
        """Return what is kept of the lines from one second to another, both included; RFC 3339 in UTC."""
        return [
            line
            for stamp, line in self._kept
            if not stamp or since[:_SECONDS] <= _sortable(stamp)[:_SECONDS] <= until[:_SECONDS]
        ]

    def _take(self, data: bytes) -> None:
        if self._is_piece:
            data, self._is_piece = self._last.encode() + b" " + data, False
            self._at_last -= 1  # the line counts once
        if self._deliver is None and self._skipped is None:
            pieces = data.rsplit(b"\n", KEPT_LINES)
            self._may_be_more |= len(pieces) > KEPT_LINES
            data = b"\n".join(pieces[-KEPT_LINES:])
        stamps, lines = _split(data.decode("utf-8", "replace"))
        if self._skipped is not None:
            known = self._known(stamps)
            del stamps[:known], lines[:known]
        if not lines:
            return
        self._note_last(stamps)
        end = zip(stamps[-KEPT_LINES:], lines[-KEPT_LINES:], strict=True)
        self._kept.extend((stamp, line[:_KEPT_LENGTH]) for stamp, line in end)
        if self._deliver is not None:
            self._deliver([" ".join(each) for each in zip(stamps, lines, strict=True)] if self._with_times else lines)

    def _known(self, stamps: list[str]) -> int:
        """Return how many lines were delivered before the log was opened again."""
        last, skipped = _sortable(self._last), self._skipped or 0
        for index, stamp in enumerate(stamps):
            if stamp and (time := _sortable(stamp)) >= last:
                if time > last or (skipped == self._at_last and not self._may_be_more):
                    self._skipped = None
                    return index
                skipped += 1
        self._skipped = skipped
        return len(stamps)

    def _is_after_last(self, stamp: str) -> bool:
        """Whether a line was not delivered before the log was opened again."""
        last = _sortable(self._last)
        return bool(stamp) and (_sortable(stamp), self._skipped or 0) >= (last, self._at_last)

    def _note_last(self, stamps: list[str]) -> None:
        last = next((stamp for stamp in reversed(stamps) if stamp), self._last)
        same = len(stamps)
        for index in range(len(stamps), 0, -1):
            if stamps[index - 1] != last:
                same = len(stamps) - index
                self._may_be_more = False
                break
        if last != self._last:
            self._may_be_more &= not self._last or same == len(stamps)
            self._last, self._at_last = last, 0
        self._at_last += same

    def _show_rest(self) -> None:
        text = ""
        if self._rest and self._deliver is not None:
            stamps, lines = _split(self._rest.decode("utf-8", "replace"))
            if (self._is_piece or stamps[0]) and (self._skipped is None or self._is_after_last(stamps[0])):
                text = lines[0]
        if text != self._shown:
            self._shown = text
            self._partial(text)


def _split(text: str) -> tuple[list[str], list[str]]:
    """Split text into the times of its lines and the lines; what a server has put in between has no time."""
    stamps, lines = [], []
    for line in text.split("\n"):
        if (found := _STAMP.match(line)) is not None:
            stamps.append(found[1])
            lines.append(line[found.end() :])
        else:
            stamps.append("")
            lines.append(line)
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    return stamps, lines


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
