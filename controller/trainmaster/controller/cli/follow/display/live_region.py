"""The last rows of a terminal, which are drawn over and over while lines go by above them.

- The cursor stays at the beginning of the region, hidden. So the region is erased without knowing how many rows it has
  meanwhile: a terminal that becomes narrower wraps it, one that becomes lower scrolls only what is above the cursor. No
  row of it ever gets into the scrollback.
- What is written at once goes out in one piece: the region is erased, the lines are written, the region is drawn.
- The terminal is held as `held_terminal` says: Ctrl-Z takes the region away as long as the program is stopped, and
  keys that are pressed meanwhile are not echoed, which would move the cursor.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self, TextIO

from trainmaster.controller.cli.follow.display.held_terminal import (
    BEGIN_UPDATE,
    END_UPDATE,
    ERASE_BELOW,
    ERASE_LINE,
    HIDE_CURSOR,
    NO_WRAP,
    RESET_COLOURS,
    SHOW_CURSOR,
    WRAP,
    HeldTerminal,
)


class LiveRegion:
    """A region at the bottom of a terminal; a context manager."""

    def __init__(self, file: TextIO) -> None:
        self._rows: tuple[str, ...] = ()
        self._terminal = HeldTerminal(
            file,
            begin=HIDE_CURSOR,
            end=f"{END_UPDATE}{WRAP}\r{ERASE_BELOW}{SHOW_CURSOR}",
            on_return=self._draw_again,
        )

    def __enter__(self) -> Self:
        self._terminal.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._terminal.__exit__(*exc_info)

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines of the terminal at the moment; 80 and 24 of one that does not tell."""
        return self._terminal.size

    def write(self, lines: str, rows: Sequence[str]) -> None:
        """Write lines above the region, and draw the region.

        Args:
            lines: Each with its newline; may be empty. After `close` nothing else is written.
            rows: One row of the terminal each, which is cut where the terminal ends.
        """
        if not self._terminal.is_open:
            self._terminal.send(lines)
        elif lines or tuple(rows) != self._rows:
            erasing = ERASE_BELOW if lines else ""
            self._terminal.send(f"{BEGIN_UPDATE}{erasing}{lines}{self._drawn(rows)}{END_UPDATE}")

    def close(self) -> None:
        """Take the region away, and give the terminal back."""
        self._terminal.close()

    def _drawn(self, rows: Sequence[str]) -> str:
        self._rows = tuple(rows)
        rows = rows[: max(1, self.size.lines - 1)]
        drawn = f"{ERASE_LINE}\r\n".join(rows)
        back = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 else ""
        return f"{RESET_COLOURS}{NO_WRAP}{drawn}{ERASE_BELOW}{WRAP}{back}\r"

    def _draw_again(self) -> None:
        rows, self._rows = self._rows, ()
        self.write("", rows)
