"""The last rows of a terminal, which are drawn over and over while lines go by above them.

- The cursor stays at the beginning of the region, hidden. So the region is erased without knowing how many rows it has
  meanwhile: a terminal that becomes narrower wraps it, one that becomes lower scrolls only what is above the cursor. No
  row of it ever gets into the scrollback.
- What is written at once goes out in one piece: the region is erased, the lines are written, the region is drawn.
- Keys that are pressed meanwhile are not echoed, which would move the cursor. Ctrl-Z takes the region away as long as
  the program is stopped; a signal that ends the program leaves the terminal as it was found.
- A terminal that is gone ends nothing: nobody looks at it any more.
"""

from __future__ import annotations

import os
import select
import signal
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Self, TextIO

_HIDE_CURSOR: Final = "\x1b[?25l"
_SHOW_CURSOR: Final = "\x1b[?25h"
_NO_WRAP: Final = "\x1b[?7l"
_WRAP: Final = "\x1b[?7h"
_BEGIN_UPDATE: Final = "\x1b[?2026h"
"""Terminals that know it show nothing of an update before its end; others ignore it."""

_END_UPDATE: Final = "\x1b[?2026l"
_ERASE_BELOW: Final = "\x1b[J"
_ERASE_LINE: Final = "\x1b[K"
_RESET_COLOURS: Final = "\x1b[m"
_LFLAG: Final = 3


class LiveRegion:
    """A region at the bottom of a terminal; a context manager."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._rows: tuple[str, ...] = ()
        self._is_open = False
        self._modes: list[Any] | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._open()
        handlers: list[tuple[signal.Signals, Callable[[int, FrameType | None], None]]]
        handlers = [(signal.SIGTERM, self._on_end), (signal.SIGHUP, self._on_end), (signal.SIGTSTP, self._on_stop)]
        for number, handler in handlers:
            if signal.getsignal(number) is signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        self.close()

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines of the terminal at the moment; 80 and 24 of one that does not tell."""
        try:
            size = os.get_terminal_size(self._file.fileno())
        except OSError:
            size = os.terminal_size((0, 0))
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def write(self, lines: str, rows: Sequence[str]) -> None:
        """Write lines above the region, and draw the region.

        Args:
            lines: Each with its newline; may be empty. After `close` nothing else is written.
            rows: One row of the terminal each, which is cut where the terminal ends.
        """
        if not self._is_open:
            self._send(lines)
        elif lines or tuple(rows) != self._rows:
            self._send(f"{_BEGIN_UPDATE}{_ERASE_BELOW if lines else ''}{lines}{self._drawn(rows)}{_END_UPDATE}")

    def close(self) -> None:
        """Take the region away, and give the terminal back."""
        if self._is_open:
            self._is_open = False
            self._rows = ()
            self._send(f"{_END_UPDATE}{_WRAP}\r{_ERASE_BELOW}{_SHOW_CURSOR}")
            self._give_keys_back()

    def _open(self) -> None:
        self._file.flush()
        self._is_open = True
        self._take_keys()
        self._send(_HIDE_CURSOR)

    def _drawn(self, rows: Sequence[str]) -> str:
        self._rows = tuple(rows)
        rows = rows[: max(1, self.size.lines - 1)]
        drawn = f"{_ERASE_LINE}\r\n".join(rows)
        back = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 else ""
        return f"{_RESET_COLOURS}{_NO_WRAP}{drawn}{_ERASE_BELOW}{_WRAP}{back}\r"

    def _send(self, text: str) -> None:
        # Not by the buffer of the file: a handler of a signal may come in between, and writes as well.
        data, terminal = text.encode(self._file.encoding, "replace"), self._file.fileno()
        while data:
            try:
                data = data[os.write(terminal, data) :]
            except BlockingIOError:
                select.select([], [terminal], [])  # others share the terminal, and may have chosen not to wait for it
            except OSError:
                return  # the terminal is gone, which a signal tells those who do not ignore it

    # The terminal's own behaviour

    def _take_keys(self) -> None:
        terminal = self._file.fileno()
        try:
            if os.tcgetpgrp(terminal) != os.getpgrp():
                return  # in the background its keys are those of somebody else
            self._modes = termios.tcgetattr(terminal)
            modes = termios.tcgetattr(terminal)
            # Ctrl-C must not throw away what is on its way: the cursor would not be where it is believed to be.
            modes[_LFLAG] = modes[_LFLAG] & ~termios.ECHO | termios.NOFLSH
            termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
        except (OSError, termios.error):
            self._modes = None  # a terminal of another session: nobody presses keys here

    def _give_keys_back(self) -> None:
        if self._modes is not None:
            modes, self._modes = self._modes, None
            with suppress(OSError, termios.error):  # the terminal may be gone
                termios.tcsetattr(self._file.fileno(), termios.TCSADRAIN, modes)

    def _on_end(self, number: int, _: FrameType | None) -> None:
        self.__exit__()
        os.kill(os.getpid(), number)

    def _on_stop(self, number: int, _: FrameType | None) -> None:
        rows = self._rows
        self.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # Here it goes on when somebody lets it.
        signal.signal(number, self._on_stop)
        self._open()
        self.write("", rows)
