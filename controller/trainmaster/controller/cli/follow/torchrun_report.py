"""What torchrun says of a program that failed: its own traceback and a report of some forty lines, in which the program
does not occur. They push out of the last lines what the program said itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_LOG: Final = r"[A-Z]\d{4} \S+ \d+ torch/distributed/elastic/multiprocessing/api\.py:\d+\] (?:\[default\d+\]: ?)?"
_FAILED: Final = re.compile(_LOG + r"failed \(exitcode: (-?\d+)\)")
"""Which process failed first, and with which exit code: that of the container is always 1."""

_STOPPING: Final = re.compile(_LOG + "Sending process ")


def without_report(lines: Sequence[str]) -> list[str]:
    """Return the lines of a log up to the one in which torchrun tells of the process that failed, with that line."""
    kept: list[str] = []
    for line in lines:
        if _FAILED.match(line):
            return [*kept, line]
        if not _STOPPING.match(line):
            kept.append(line)
    return list(lines)


def exit_code_of_program(lines: Sequence[str]) -> int | None:
    """Return how the program ended as torchrun tells: below 0 the number of a signal; None if it tells nothing."""
    found = next((found for line in reversed(lines) if (found := _FAILED.match(line)) is not None), None)
    return None if found is None else int(found[1])


def without_verdict(lines: Sequence[str]) -> list[str]:
    """Return the lines without that in which torchrun tells of the process that failed."""
    return [line for line in lines if _FAILED.match(line) is None]
