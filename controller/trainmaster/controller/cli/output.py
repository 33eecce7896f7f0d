"""The output of the command line: everything that a command prints goes through here, whoever has written it.

Guarantees:
- A character that a terminal would act upon, that changes the order in which others are read, or that ends a line
  besides the newline, is never written as it is, but as `\\u001b`, which means the same in JSON and in quoted YAML.
- Logs go to a terminal with their colours and nothing else of that kind, and to files and programs as they are.

Displays, which draw on a terminal, write to its descriptor themselves, and what they draw is `marked`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from trainmaster.controller.cli.terminal_text import UNSAFE, printable_lines


class GuardedOutput:
    """A stream of text that shows unsafe characters, and is otherwise the one below it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        self.stream.write(UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guarded_output() -> Iterator[None]:
    """Have everything guarded that is printed meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", GuardedOutput(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def write_log(lines: str) -> None:
    """Print lines of a log: on a terminal with the colours that their program chose, elsewhere as they are."""
    shown = printable_lines(f"{lines}\n") if sys.stdout.isatty() else f"{lines}\n"
    getattr(sys.stdout, "stream", sys.stdout).write(shown)


def write_log_line(line: bytes, *, prefix: str = "") -> None:
    """Print a line of a log; to what is no terminal byte by byte."""
    if sys.stdout.isatty():
        write_log(prefix + line.decode("utf-8", "replace"))
    else:
        sys.stdout.buffer.write(prefix.encode() + line + b"\n")
