"""Ending the process at once, when it is too late or impossible to end it in order."""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Final, NoReturn

import structlog

log = structlog.get_logger(__name__)

_LOG_AT_MOST: Final = 0.5
"""Seconds; the thread that is stuck may hold the lock of the logs, or nobody may read them."""

_CALLS: Final = 4


def end_process(event: str, **fields: object) -> NoReturn:
    """End the process with code 1, without clean-up, after one log line that also says what the main thread does."""

    def write() -> None:
        log.critical(event, main_thread=main_thread_calls(), **fields)
        sys.stderr.flush()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(_LOG_AT_MOST)
    os._exit(1)


def main_thread_calls() -> str:
    """Return the innermost calls of the main thread, the latest last: what it runs, or what it is stuck in."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - documented
    calls: list[str] = []
    while frame is not None and len(calls) < _CALLS:
        calls.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(calls))
