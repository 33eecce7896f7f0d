"""Metrics of plugin calls: counted and timed, and the slow ones named.

A plugin runs on the event loop, so nothing else does while it thinks: no other TrainJob, no probe, no watch.
"""

from __future__ import annotations

from typing import Final

import structlog

from trainmaster.metrics.controller import observe_plugin_call

log = structlog.get_logger(__name__)

SLOW: Final = 0.1
"""Seconds; the longest stall of the event loop that the whole controller may cause."""


class PluginCallObserver:
    """The observer of a plugin framework in a process that runs an event loop.

    A plugin that is slow in a phase is logged once, with the TrainJob that it was slow for; from then on
    `trainmaster_plugin_call_seconds` tells how often.
    """

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()

    def __call__(self, plugin: str, phase: str, seconds: float, succeeded: bool) -> None:
        """Take in one call."""
        observe_plugin_call(plugin, phase, seconds, succeeded)
        if seconds > SLOW and (plugin, phase) not in self._logged:
            self._logged.add((plugin, phase))
            log.warning(
                "a plugin is slow and held up everything else meanwhile; ask its author to compute less or to cache",
                plugin=plugin,
                phase=phase,
                seconds=round(seconds, 3),
            )
