"""Tracebacks that a log repeats: a training that is started anew often fails as before, at the same place.

Of a traceback whose frames were printed already only the last line is passed on, which says what was raised, with the
number of lines that are left out. Nothing is held back before a first traceback has been seen.
"""

from __future__ import annotations

import re
from typing import Final

_BEGINNING: Final = "Traceback (most recent call last):"
_RANK: Final = re.compile(r"\[(?:default|rank)\d+\]:(?:\[rank\d+\]:)? ?")
"""What torchrun and torch.distributed put before each line of a traceback."""

_LONGEST: Final = 1000


class Tracebacks:
    """The tracebacks of one log, through all runs of what writes it."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()
        self._held: list[str] = []
        self._frames: list[str] = []

    @property
    def is_holding(self) -> bool:
        """Whether the beginning of a traceback is kept back, since its end is yet to come."""
        return bool(self._held)

    def shorten(self, lines: list[str]) -> list[str]:
        """Return the lines that are to be printed now."""
        if not self._frames and not any(_BEGINNING in line for line in lines):
            return lines
        printed: list[str] = []
        for line in lines:
            text = _RANK.sub("", line, count=1)
            if self._frames and text.startswith((" ", "\t")) and len(self._frames) < _LONGEST:
                self._frames.append(text)
                self._hold(line, printed)
            elif self._frames:
                self._end(line, printed)
            elif text == _BEGINNING:
                self._frames = [text]
                self._hold(line, printed)
            else:
                printed.append(line)
        return printed

    def release(self) -> list[str]:
        """Return what was kept back, as no more comes."""
        held, self._held, self._frames = self._held, [], []
        return held

    def _hold(self, line: str, printed: list[str]) -> None:
        (self._held if self._seen else printed).append(line)

    def _end(self, line: str, printed: list[str]) -> None:
        frames = tuple(self._frames)
        held = self.release()
        if frames in self._seen:
            printed.append(f"[{len(held)} lines of a traceback as before] {line}")
        else:
            self._seen.add(frames)
            printed.extend([*held, line])
