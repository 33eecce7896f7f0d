"""Programs on a terminal of their own, for tests of what they ask and of keys that are pressed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select

TIMEOUT = 60.0
"""Seconds, which only end tests that hang anyway."""

# Of a session that is new, the terminal has to become the controlling one, by which Ctrl-C is a signal.
_LAUNCHER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


@dataclass
class Terminal:
    """The other end of a terminal, on which a program runs."""

    process: subprocess.Popen[bytes]
    master: int
    seen: str = ""
    """All that was on it."""

    def press(self, keys: str) -> None:
        """Type something."""
        os.write(self.master, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read until a text comes, what was read before not counted; blocks."""
        before = len(self.seen)
        while text not in self.seen[before:]:
            assert self._read(), f"{text!r} was never seen: {self.seen!r}"

    def wait(self) -> int:
        """Read until the program has ended; returns its exit code; blocks."""
        while self._read():
            pass
        return self.process.wait(TIMEOUT)

    def _read(self) -> bool:
        readable, _, _ = select([self.master], [], [], TIMEOUT)
        assert readable, f"nothing happens: {self.seen!r}"
        try:
            found = os.read(self.master, 65536)
        except OSError:  # nobody has the other end any more
            return False
        self.seen += found.decode(errors="replace")
        return bool(found)


@contextmanager
def terminal(
    command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run a program on a terminal; it is killed when the block ends, if it still runs."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, *command],
        cwd=directory,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait(TIMEOUT)
        os.close(master)
