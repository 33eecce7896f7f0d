"""What is seen of calls of plugins: metrics, the slow ones by name, and for their authors the tracebacks of errors.

Owners of TrainJobs get a sentence; the author of a plugin needs file and line, and finds them in the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from trainmaster.controller.plugins.guard import TimeLimitExceeded
from trainmaster.metrics.plugins import CallResult, observe_plugin_call
from trainmaster.runtime.framework.calls import text_of
from trainmaster.runtime.framework.interface import Rejected

log = structlog.get_logger(__name__)

SLOW: Final = 0.1
"""Seconds; the longest stall of the event loop that the whole controller may cause."""

LOG_INTERVAL: Final = 600.0
"""Seconds after which an error of the same place is logged again; jobs that are blocked come again and again."""

_MOST_PLACES: Final = 1000
"""Places that are remembered; a plugin that makes code as it runs has any number of them."""


class PluginCallObserver:
    """The observer of a plugin framework in a process that runs an event loop.

    A plugin that is slow in a phase is logged once, with the TrainJob that it was slow for; from then on
    `trainmaster_plugin_call_seconds` tells how often. An error is logged with its traceback, once in `LOG_INTERVAL` for
    each place in the code that raises it.

    Args:
        now: The time.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._slow: set[tuple[str, str]] = set()
        self._logged: dict[tuple[str, str, str, str, int], float] = {}
        self._lock = threading.Lock()

    def __call__(self, plugin: str, phase: str, seconds: float, error: BaseException | None) -> None:
        """Take in one call."""
        observe_plugin_call(plugin, phase, seconds, "success" if error is None else result_of(error))
        if error is not None and not isinstance(error, Rejected) and self._is_new(plugin, phase, error):
            log.error(
                "a plugin failed",
                plugin=plugin,
                phase=phase,
                error=f"{type(error).__name__}: {text_of(error)}",
                exc_info=error,
            )
        if seconds > SLOW and (plugin, phase) not in self._slow:
            self._slow.add((plugin, phase))
            log.warning(
                "a plugin is slow, and other TrainJobs wait meanwhile; ask its author to compute less or to cache",
                plugin=plugin,
                phase=phase,
                seconds=round(seconds, 3),
            )

    def _is_new(self, plugin: str, phase: str, error: BaseException) -> bool:
        place = (plugin, phase, type(error).__name__, *_place_of(error))
        now = self._now()
        with self._lock:
            last = self._logged.get(place)
            if last is not None and now - last < LOG_INTERVAL:
                return False
            if len(self._logged) >= _MOST_PLACES:
                self._logged.clear()
            self._logged[place] = now
            return True


def result_of(error: BaseException) -> CallResult:
    """Return what a call is counted as that raised an error."""
    match error:
        case Rejected():
            return "rejected"
        case TimeLimitExceeded():
            return "timeout"
        case _:
            return "error"


def _place_of(error: BaseException) -> tuple[str, int]:
    """Return file and line in which an error was raised."""
    traceback, place = error.__traceback__, ("", 0)
    while traceback is not None:
        place = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return place
