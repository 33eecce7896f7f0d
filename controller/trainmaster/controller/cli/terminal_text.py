"""Lines of logs as they may be written to a terminal; pure.

Colours stay. What would move the cursor, clear the screen, rename the window or switch character sets goes, since a
display would be drawn in the wrong place from then on, and what changes the order in which text is read. Of a line that
was drawn over, what stood last is left.
"""

from __future__ import annotations

import re
from typing import Final

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
