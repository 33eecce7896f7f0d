"""A text that takes the whole screen, and what of it is seen; pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from trainmaster.controller.cli.terminal_text import plain
from trainmaster.controller.cli.top.display.keyboard import Key


class Page:
    """A text of lines of any length.

    Args:
        title: Stands above it.
        lines: Of the text.
    """

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        self._title = title
        self._lines = lines
        self._top = 0
        self._height = 1

    def press(self, key: str) -> bool:
        """Take a key; returns whether the page is still wanted."""
        match key:
            case Key.UP | "k":
                self._top -= 1
            case Key.DOWN | "j":
                self._top += 1
            case Key.PAGE_UP:
                self._top -= self._height
            case Key.PAGE_DOWN | " ":
                self._top += self._height
            case Key.HOME:
                self._top = 0
            case Key.END:
                self._top = sum(map(len, self._lines))  # beyond all rows, wherever they are wrapped
            case Key.ENTER | Key.ESCAPE | "q":
                return False
        return True

    def rows(self, columns: int, lines: int) -> list[Text]:
        """Return the rows of the screen, never more than the terminal has."""
        wrapped = list(_wrapped(self._lines, max(columns, 1)))
        self._height = max(1, lines - 2)
        self._top = max(0, min(self._top, len(wrapped) - self._height))
        seen = wrapped[self._top : self._top + self._height]
        below = len(wrapped) - self._top - len(seen)
        foot = "enter, q back" + (f"   {below} more below" if below else "")
        blank = [""] * (self._height - len(seen))
        rows = [Text(self._title, style="bold"), *map(Text, [*seen, *blank]), Text(foot, style="dim")]
        for row in rows:
            row.truncate(columns, overflow="ellipsis")
        return rows[:lines]


def _wrapped(lines: Iterable[str], columns: int) -> Iterator[str]:
    for line in map(plain, lines):
        indent = " " * min(len(line) - len(line.lstrip()), columns // 2)
        yield from textwrap.wrap(line, columns, subsequent_indent=indent, drop_whitespace=True) or [""]
