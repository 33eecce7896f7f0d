"""A hosts file that running pods have mounted: it changes in place, and whoever reads it meanwhile reads whole lines.

- No line ever moves. One is taken away by a `#` over its first byte; a new one is written behind the last, or over one
  that was taken away, its first byte last.
- What a full disk cut off is no line, and is written again by the next call.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import NamedTuple


class _Place(NamedTuple):
    offset: int
    length: int


class HostsFile:
    """The file at a path; what an earlier run left there is dropped, since no process of it lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = 0
        self._shown: dict[Hashable, dict[str, _Place]] = {}
        """Lines by what they are about."""
        self._free: list[_Place] = []
        path.write_bytes(b"")

    def show(self, about: Hashable, lines: Iterable[str]) -> None:
        """Make these the lines about something; the new ones come before the old ones go.

        Raises:
            OSError: They could not all be written, for instance because the disk is full.
        """
        shown, wanted = self._shown.setdefault(about, {}), dict.fromkeys(lines)
        if wanted.keys() != shown.keys():
            descriptor = os.open(self.path, os.O_WRONLY)
            try:
                for line in wanted:
                    if line not in shown:
                        shown[line] = self._write(descriptor, line)
                for line in shown.keys() - wanted.keys():
                    os.pwrite(descriptor, b"#", shown[line].offset)
                    self._free.append(shown.pop(line))
            finally:
                os.close(descriptor)
        if not shown:
            del self._shown[about]

    def _write(self, descriptor: int, line: str) -> _Place:
        content = line.encode("ascii")
        fitting = [free for free in self._free if free.length >= len(content)]
        place = min(fitting, key=lambda free: free.length, default=_Place(self._size, len(content)))
        _write_all(descriptor, b"#" + content[1:].ljust(place.length - 1) + b"\n", place.offset)
        os.pwrite(descriptor, content[:1], place.offset)
        if fitting:
            self._free.remove(place)
        else:
            self._size += place.length + 1
        return place


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    written = 0
    while written < len(content):  # an almost full disk takes a part
        written += os.pwrite(descriptor, content[written:], offset + written)
