"""What is seen of calls of plugins: metrics, the slow ones by name, and for their authors the tracebacks of errors.

Owners of TrainJobs get a sentence; the author of a plugin needs file and line, and finds them in the log.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

import structlog
from cachetools import TTLCache

from trainmaster.metrics.plugins import CallResult, observe_plugin_call
from trainmaster.runtime.framework.calls import TimeLimitExceeded, text_of
from trainmaster.runtime.framework.interface import Rejected

log = structlog.get_logger(__name__)

SLOW: Final = 0.1
"""Seconds; the longest stall of the event loop that the whole controller may cause."""

LOG_INTERVAL: Final = 600.0
"""Seconds after which an error of the same place is logged again; jobs that are blocked come again and again."""


class PluginCallObserver:
    """The observer of a plugin framework in a process that runs an event loop.

    A plugin that is slow in a phase is logged once, with the TrainJob that it was slow for; from then on
    `trainmaster_plugin_call_seconds` tells how often. An error is logged with its traceback, once in `LOG_INTERVAL` for
    each place in the code that raises it.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._slow: set[tuple[str, str]] = set()
        # Bounded: a plugin that makes code as it runs has any number of places.
        self._logged: TTLCache[object, bool] = TTLCache(1000, LOG_INTERVAL, timer=now)
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
        *_, raised = "", *((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))
        place = (plugin, phase, type(error).__name__, raised)
        with self._lock:
            is_new = place not in self._logged
            self._logged.setdefault(place, True)
            return is_new


def result_of(error: BaseException) -> CallResult:
    """Return what a call is counted as that raised an error."""
    if isinstance(error, Rejected):
        return "rejected"
    return "timeout" if isinstance(error, TimeLimitExceeded) else "error"
