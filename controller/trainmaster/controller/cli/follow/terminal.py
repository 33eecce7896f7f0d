"""A terminal on which a program draws by itself, and which it gives back however it ends; and a region at its bottom.

- Meanwhile the cursor is hidden, and keys that are pressed are not echoed. Whoever reads keys gets each at once; those
  that send signals (Ctrl-C, Ctrl-Z) go on to do so.
- A signal that ends the program leaves the terminal as it was found. Ctrl-Z gives it back as long as the program is
  stopped; a program that goes on, whatever has stopped it, takes the terminal again.
- A terminal that is gone ends nothing: nobody looks at it any more.
- In the region the cursor stays at the beginning. So it is erased without knowing how many rows it has meanwhile: a
  terminal that becomes narrower wraps it, one that becomes lower scrolls only what is above the cursor. No row of it
  ever gets into the scrollback. `rich.live` counts rows, and so cannot promise that.
- What is written at once goes out in one piece: the region is erased, the lines are written, the region is drawn.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from types import FrameType
from typing import Any, Final, Self, TextIO

HIDE_CURSOR: Final = "\x1b[?25l"
SHOW_CURSOR: Final = "\x1b[?25h"
NO_WRAP: Final = "\x1b[?7l"
WRAP: Final = "\x1b[?7h"
BEGIN_UPDATE: Final = "\x1b[?2026h"
"""Terminals that know it show nothing of an update before its end; others ignore it."""

END_UPDATE: Final = "\x1b[?2026l"
ERASE_BELOW: Final = "\x1b[J"
ERASE_LINE: Final = "\x1b[K"
RESET_COLOURS: Final = "\x1b[m"

_LFLAG: Final = 3


class HeldTerminal:
    """A terminal; a context manager.

    `begin` is sent when it is taken, `end` when it is given back; `on_return` is called when it was taken again, and
    what was drawn is gone.
    """

    def __init__(
        self,
        file: TextIO,
        *,
        begin: str,
        end: str,
        reads_keys: bool = False,
        on_return: Callable[[], object] = lambda: None,
    ) -> None:
        self._file = file
        self._begin = begin
        self._end = end
        self._reads_keys = reads_keys
        self._on_return = on_return
        self._modes: list[Any] | None = None
        """Those that were found; None as long as ours do not hold."""

        self._handlers: dict[signal.Signals, Any] = {}
        self.is_open = False

    def __enter__(self) -> Self:
        self._open()
        handlers: list[tuple[signal.Signals, Callable[[int, FrameType | None], None]]]
        handlers = [
            (signal.SIGTERM, self._on_end),
            (signal.SIGHUP, self._on_end),
            (signal.SIGTSTP, self._on_stop),
            (signal.SIGCONT, self._on_continue),
        ]
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

    @property
    def has_keys(self) -> bool:
        """Whether the keys that are pressed are for this program; in the background they are those of another one."""
        return self._modes is not None

    def send(self, text: str) -> None:
        """Write something."""
        # Not by the buffer of the file: a handler of a signal may come in between, and writes as well.
        data, terminal = text.encode(self._file.encoding, "replace"), self._file.fileno()
        while data:
            try:
                data = data[os.write(terminal, data) :]
            except BlockingIOError:
                select.select([], [terminal], [])  # others share the terminal, and may have chosen not to wait for it
            except OSError:
                return  # the terminal is gone, which a signal tells those who do not ignore it

    def close(self) -> None:
        """Give the terminal back."""
        if self.is_open:
            self.is_open = False
            self.send(self._end)
            self._give_keys_back()

    def _open(self) -> None:
        self._file.flush()
        self.is_open = True
        self._take_keys()
        self.send(self._begin)

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
            if self._reads_keys:
                modes[_LFLAG] &= ~termios.ICANON
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
        self.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # Here it goes on when somebody lets it.
        signal.signal(number, self._on_stop)
        self._return()

    def _on_continue(self, _number: int, _: FrameType | None) -> None:
        """Go on after a stop that nobody was told of (SIGSTOP): the shell has changed the terminal meanwhile."""
        if self.is_open:
            self._give_keys_back()
            self._return()

    def _return(self) -> None:
        self._open()
        self._on_return()


@contextmanager
def redirected_stderr(stream: TextIO) -> Iterator[None]:
    """Have what is written to standard error meanwhile, by the loggers as well, go to a stream."""
    with ExitStack() as exits:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                exits.callback(handler.setStream, handler.setStream(stream))
        exits.enter_context(redirect_stderr(stream))
        yield


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

        Lines have their newlines; after `close` nothing else is written. A row is cut where the terminal ends.
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
