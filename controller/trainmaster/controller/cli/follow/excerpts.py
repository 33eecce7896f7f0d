"""What of the end of a log is shown of a failure: its last traceback, with the user's own code, or some lines; pure.

- A traceback is shown from its beginning on, with those that it is chained to. Frames of libraries are folded, one line
  for each run of them. The frames of the user, and what was raised, stay as they are, and so does a traceback in which
  all frames are of libraries.
- Of what is still too long the beginning and the end are shown.
- Within exception groups nothing is folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

_LINES: Final = 20
"""Without a traceback."""

_LINES_WITH_TRACEBACK: Final = 40

_RANK: Final = re.compile(r"(?:\[default\d+\]: ?)?(?:\[rank\d+\]: ?)?")
"""What torchrun and torch.distributed put before each line of a traceback."""

_BEGINNING: Final = "Traceback (most recent call last):"
_WITHIN: Final = re.compile(rf"[ |]*\| +{re.escape(_BEGINNING)}|.*\bOriginal {re.escape(_BEGINNING)}")
"""Beginnings within others: in a group, and of an error of a worker, which a loader of data repeats in its message."""

_CHAINED: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_FRAME: Final = re.compile(r'  File "(?P<file>[^"]+)", line \d+, in ')
"""Of a SyntaxError the place has no function: it is what was raised, and no frame."""

_REST_OF_FRAME: Final = ("    ", "  [Previous line repeated ")
_PACKAGE: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]+)")
_STANDARD_LIBRARY: Final = re.compile(r"<frozen |.*[/\\]lib(?:64)?[/\\]python3[^/\\]*[/\\]")


def excerpt(lines: Sequence[str]) -> list[str]:
    """Return what is to be shown of the last lines of a log; prefixes of ranks stay."""
    beginning = _beginning(lines)
    if beginning is None:
        return list(lines[-_LINES:])
    shown = list(_folded(lines[beginning:]))
    if len(shown) <= _LINES_WITH_TRACEBACK:
        return shown
    half = _LINES_WITH_TRACEBACK // 2
    return [*shown[: half - 1], f"[{len(shown) - 2 * half + 1} lines are left out here]", *shown[-half:]]


def _beginning(lines: Sequence[str]) -> int | None:
    """Return where the last traceback begins, or the first of those that are chained to it."""
    found: int | None = None
    for index in range(len(lines) - 1, -1, -1):
        if _begins(lines[index]) and (found is None or _is_chained(lines[:found])):
            found = index
        elif found is not None and not _is_chained(lines[:found]):
            break
    return found


def _begins(line: str) -> bool:
    # Not only at the beginning of a line: what is drawn over ends without a newline.
    return line.rstrip().endswith(_BEGINNING) and _WITHIN.fullmatch(_text(line).rstrip()) is None


def _is_chained(before: Sequence[str]) -> bool:
    said = next((text for line in reversed(before[-5:]) if (text := _text(line).strip())), "")
    return said in _CHAINED


def _folded(lines: Sequence[str]) -> Iterator[str]:
    frames = [(_FRAME.match(_text(line)), line) for line in lines]
    packages = [None if frame is None else _library(frame["file"]) for frame, _ in frames]
    if all(package is not None for package, (frame, _) in zip(packages, frames, strict=True) if frame is not None):
        yield from lines
        return
    run: list[str] = []
    prefix = ""
    for package, (frame, line) in zip(packages, frames, strict=True):
        if package is not None:
            prefix = prefix if run else line[: len(line) - len(_text(line))]
            run.append(package)
        elif not run or frame is not None or not _text(line).startswith(_REST_OF_FRAME):
            if run:
                yield prefix + _fold(run)
                run = []
            yield line
    if run:
        yield prefix + _fold(run)


def _fold(run: Sequence[str]) -> str:
    return f"  [{len(run)} frame{'s' if len(run) > 1 else ''} in {', '.join(dict.fromkeys(run))}]"


def _library(file: str) -> str | None:
    """Return the name of the library that a file is of; None if it is the user's."""
    if (package := _PACKAGE.search(file)) is not None:
        return package[1].removesuffix(".py")
    return "python" if _STANDARD_LIBRARY.match(file) is not None else None


def _text(line: str) -> str:
    """Return a line without the prefix of its rank; of what was drawn over, such as the bar of tqdm, the last state."""
    return _RANK.sub("", line.rpartition("\r")[2], count=1)
