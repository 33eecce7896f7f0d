"""A terminal for tests: a pseudoterminal, and an emulator that keeps what it shows and what has scrolled away."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import pyte
from support.commands import TIMEOUT, eventually

_SESSION = """
import fcntl, os, signal, sys, termios
results = int(sys.argv[1])
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
program = os.fork()
if program == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(each, signal.SIG_DFL)  # whoever runs the tests in the background ignores some of these
    os.execvp(sys.argv[2], sys.argv[2:])
os.write(results, f"{program}\\n".encode())
_, status = os.waitpid(program, 0)
os.write(results, f"{os.waitstatus_to_exitcode(status)}\\n".encode())
signal.pause()
"""
"""A shell's part: keys send signals to the program, and when that ends, the terminal is still there."""


def _environment() -> dict[str, str]:
    """What a program finds at somebody's terminal, wherever the tests run: `CI` would say that nobody looks."""
    return {**{name: value for name, value in os.environ.items() if name != "CI"}, "TERM": "xterm-256color"}


class Program:
    """A program that runs in a terminal."""

    def __init__(self, results: TextIO) -> None:
        self._results = results
        self._pid = int(results.readline())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self._pid, number)

    def wait(self) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        return int(self._results.readline())


class Terminal:
    """A terminal of some size; `file` is what a program writes to."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=100_000)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = os.openpty()
        self.file: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self._titles = 0
        self.output = ""
        """All that was written, as it was."""

        self._waited = 0
        self._read = threading.Condition()
        self._reader = threading.Thread(target=self._pump)
        self._stopped, self._stop = os.pipe()
        self._set_size(columns, lines)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()
        # That nobody writes any more the reader is not told while some process has inherited the other end.
        os.write(self._stop, b".")
        self._reader.join()
        for each in (self._stop, self._stopped, self._master):
            os.close(each)

    @contextmanager
    def program(
        self, *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Iterator[Program]:
        """A program whose terminal this is; it is killed in the end, if it still runs."""
        terminal = self.file.fileno()
        source, target = os.pipe()
        session = subprocess.Popen(
            [sys.executable, "-c", _SESSION, str(target), *command],
            cwd=cwd,
            env=environment or _environment(),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            pass_fds=[target],
        )
        os.close(target)
        try:
            with os.fdopen(source) as results:
                yield Program(results)
        finally:
            session.kill()
            session.wait()

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> None:
        """Wait until a text is written after what was waited for before."""
        with self._read:
            assert self._read.wait_for(lambda: text in self.output[self._waited :], TIMEOUT), (text, self.output)
            self._waited = len(self.output)

    @property
    def screen(self) -> list[str]:
        """What is shown, without trailing blanks and rows."""
        self.settle()
        with self._read:
            rows = [row.rstrip() for row in self._screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def shows(self, text: str) -> bool:
        """Whether some row that is shown has a text."""
        return any(text in row for row in self.screen)

    @property
    def scrollback(self) -> list[str]:
        """What has scrolled away at the top."""
        self.settle()
        with self._read:
            columns = self._screen.columns
            return ["".join(row[column].data for column in range(columns)).rstrip() for row in self._screen.history.top]

    @property
    def everything(self) -> list[str]:
        """What was ever left on the terminal."""
        return self.scrollback + self.screen

    @property
    def cursor_is_shown(self) -> bool:
        """Whether one can see where the cursor is."""
        self.settle()
        return not self._screen.cursor.hidden

    def colour(self, row: int, column: int) -> str:
        """Return the colour of a character that is shown."""
        self.settle()
        with self._read:
            return str(self._screen.buffer[row][column].fg)

    def settle(self) -> None:
        """Wait until the emulator has seen all that was written."""
        self._titles += 1
        title = f"title {self._titles}"
        os.write(self.file.fileno(), f"\x1b]2;{title}\x07".encode())
        with self._read:
            assert self._read.wait_for(lambda: self._screen.title == title, TIMEOUT), "nobody reads"

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _pump(self) -> None:
        while self._master in select.select([self._master, self._stopped], [], [])[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return  # Linux's way to say that the other end is closed
            if not data:
                return
            with self._read:
                self._stream.feed(data)
                self.output += data.decode(errors="replace")
                self._read.notify_all()


async def shown(terminal: Terminal, text: str) -> None:
    """Wait until a terminal shows a text."""
    await eventually(lambda: terminal.shows(text))
