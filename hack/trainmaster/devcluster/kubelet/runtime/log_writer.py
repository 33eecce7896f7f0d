"""The log of one container attempt, as its shim writes it; standard library only.

- Each line carries the time it was read and whether it is full (F) or a part of one (P).
- A line that is drawn over, as progress bars are, is written in parts as it comes: its end may be hours away.
- A log never takes more than its limit: at half of it the file is set aside as `<name>.1`, in place of what was set
  aside before, and `<name>.dropped` tells how many bytes of output were in all of these. The newest output is always
  there.
"""

from __future__ import annotations

import contextlib
import os
import time

LONGEST_LINE = 16 * 1024
"""Longer lines are written in parts, as container runtimes do."""

ROTATED = ".1"
"""What is added to the name of a log that was set aside."""

DROPPED = ".dropped"
"""What is added to the name of a log for the file that has the number of bytes of output, without the times of lines,
that it lacks at its beginning.
"""


class LogFile:
    """A container log. Without a limit it grows as long as the disk has room."""

    def __init__(self, path: str, *, limit: int = 0) -> None:
        self._path = path
        self._half = limit // 2
        self._file = self._open(path)
        self._size = 0
        self._output = 0
        """How many bytes of the file are output."""

        self._set_aside = 0
        """And of that which was set aside."""

        self._dropped = 0
        self._cut = False
        """Whether the file ends in the middle of a line."""

        self._rest = b""
        self._is_drawn_over = False
        """Whether the unfinished line has had a carriage return."""

    def feed(self, data: bytes) -> None:
        """Append output; an unfinished last line waits for its end, unless it is drawn over."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        output = sum(map(len, lines)) + len(lines)
        now = stamp()
        records: list[bytes] = []
        for line in lines:
            start = 0
            while len(line) - start > LONGEST_LINE:
                records += (now, b" P ", line[start : start + LONGEST_LINE], b"\n")
                start += LONGEST_LINE
            records += (now, b" F ", line[start:], b"\n")
        while len(self._rest) > LONGEST_LINE:
            records += (now, b" P ", self._rest[:LONGEST_LINE], b"\n")
            self._rest = self._rest[LONGEST_LINE:]
            output += LONGEST_LINE
        self._is_drawn_over = b"\r" in self._rest or (self._is_drawn_over and not lines)
        if self._rest and self._is_drawn_over:
            records += (now, b" P ", self._rest, b"\n")
            output += len(self._rest)
            self._rest = b""
        self._write(b"".join(records), output)

    def finish(self) -> None:
        """Write what is left of an unfinished line and close the file."""
        if self._rest:
            self._write(stamp() + b" P " + self._rest + b"\n", len(self._rest))
        os.close(self._file)

    def _open(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _write(self, data: bytes, output: int) -> None:
        # A full disk loses output, as it does on a real node; it must not stop the container.
        with contextlib.suppress(OSError):
            if self._half and self._size and self._size + len(data) > self._half:
                self._rotate()
            if self._cut:
                data = b"\n" + data
            self._size += len(data)
            self._output += output
            while data:
                written = os.write(self._file, data)
                self._cut = data[written - 1 : written] != b"\n"
                data = data[written:]

    def _rotate(self) -> None:
        # The new file first: what a full disk does not let happen must not happen by half.
        fresh = self._open(self._path + ".new")
        with contextlib.suppress(OSError):
            self._dropped += self._set_aside
            if self._dropped:
                with open(self._path + DROPPED, "wb") as note:  # noqa: PTH123 - as below
                    note.write(b"%d" % self._dropped)
        os.rename(self._path, self._path + ROTATED)  # noqa: PTH104 - pathlib would double the start-up time
        os.rename(self._path + ".new", self._path)  # noqa: PTH104
        os.close(self._file)
        self._file = fresh
        self._size, self._set_aside, self._output = 0, self._output, 0
        self._cut = False


class Excerpt:
    """The beginning of what a program prints, kept in memory: the output of a probe or hook."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = b""

    def feed(self, data: bytes) -> None:
        """Append output."""
        self._data += data[: self._limit - len(self._data)]

    def finish(self) -> None:
        """Nothing is left to do."""

    @property
    def text(self) -> str:
        """What was kept."""
        return self._data.decode(errors="replace")


def stamp() -> bytes:
    """Give the time as RFC 3339 text of fixed width in UTC, so that text order is time order."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return b"%s.%09dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode(), nanoseconds)
