"""Why a manager ended: the last error in its log, as a sentence for people."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

_READ_AT_MOST: Final = 64 * 1024
_EVENT: Final = re.compile(r"^\S+ \[(?:error|critical)\s*\] (?P<event>.*?)\s+\[(?P<logger>[\w.]+)\](?P<rest>.*)$")
_NO_ERROR_LEVEL: Final = re.compile(r"^\S+ \[(?:debug|info|warning)\s*\]")
_ERROR: Final = re.compile(r"""\berror=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)""")
_NO_ERROR: Final = "it said nothing; see its log"


def last_error(log: Path, begin: int) -> str:
    """Return the last error in a log, of what was written after its first `begin` bytes.

    That is the last event of level error, since its traceback says less to users; else the last line that is no event:
    an interpreter that fails before there are logs ends with what is wrong.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            # A log that is shorter than before was replaced by a new one.
            file.seek(max(begin if begin <= size else 0, size - _READ_AT_MOST))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return _NO_ERROR
    lines = [line for line in text.splitlines() if line.strip() and not _NO_ERROR_LEVEL.match(line)]
    for line in reversed(lines):
        if event := _EVENT.match(line):
            return _sentence(event)
    return lines[-1].strip() if lines else _NO_ERROR


def _sentence(event: re.Match[str]) -> str:
    error = _ERROR.search(event["rest"])
    return f"{event['event']}: {_unquoted(error[1])}" if error else event["event"]


def _unquoted(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    # An error may have several lines, one for each thing that is wrong.
    return "; ".join(filter(None, map(str.strip, value.splitlines()))) if isinstance(value, str) else text
