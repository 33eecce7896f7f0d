"""The output of the command line: everything that a command prints goes through here, whoever has written it.

Guarantees:
- A character that a terminal would act upon, that changes the order in which others are read, or that ends a line
  besides the newline, is never written as it is, but as `\\u001b`, which means the same in JSON and in quoted YAML.
- Logs go to a terminal with their colours and nothing else of that kind, and to files and programs as they are. Of a
  line that was drawn over, what stood last is left.

Displays, which draw on a terminal, write to its descriptor themselves, and what they draw is `marked`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

DIRECTIONS: Final = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""What changes the direction of writing, or ends a line for some programs."""

UNSAFE: Final = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{DIRECTIONS}\ud800-\udfff]")
"""Control characters, those of both directions of writing, separators of lines, and halves of surrogate pairs."""

_UNSAFE: Final = re.compile(rf"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f{DIRECTIONS}]|\x1b(?!\[[0-9;:]*m)")
"""Any control character but those of colours."""

_SEQUENCES: Final = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: cursor, erasing, modes
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]).*?(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS and others, with their texts
    r"|\x1b[ -/]*[0-~]?"
    rf"|[\x00-\x08\x0a-\x1f\x7f-\x9f{DIRECTIONS}]"
)
_RESET: Final = "\x1b[m"


def printable(line: str) -> str:
    """Return what of a line may be written, with its colours ended."""
    if _UNSAFE.search(line) is not None:
        states = [_SEQUENCES.sub(lambda found: found["colour"] or "", state) for state in line.split("\r")]
        line = next((state for state in reversed(states) if _SEQUENCES.sub("", state).strip()), "")
    return line + _RESET if "\x1b" in line else line


def printable_lines(lines: str) -> str:
    """Return the same of many lines at once, each with its newline."""
    if _UNSAFE.search(lines) is not None:
        return "".join(f"{printable(line)}\n" for line in lines.removesuffix("\n").split("\n"))
    return lines.replace("\n", f"{_RESET}\n") if "\x1b" in lines else lines


def plain(line: str) -> str:
    """Return a line without its colours and tabs."""
    return _SEQUENCES.sub("", printable(line)).expandtabs()


def marked(text: str) -> str:
    """Return a text with a mark for each unsafe character: for displays, which have measured it already."""
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Return a text of any lines as one, without colours and tabs."""
    return " ".join(plain(" ".join(text.splitlines())).split())


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
