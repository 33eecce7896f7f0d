"""Failures of plugins, in the words that the owners of TrainJobs read.

Guarantees:
- What stands in the way of a TrainJob says which plugin, in which phase, and whether it is quarantined.
- That a TrainJob goes on without a plugin is told by a condition, for as long as that is so, and by an event and a log
  line when it begins. In other words it is told again after `REPORT_INTERVAL` at the earliest: each write of a status
  enqueues the TrainJob, and the texts of errors may differ every time.
- M-11: what owners get to read has no credential that a plugin may have quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from trainmaster.controller.conditions import (
    BUILD_REJECTED,
    KIND_NOT_SERVED,
    PLUGIN_FAILED,
    PLUGIN_QUARANTINED,
    PLUGIN_SKIPPED,
    find_condition,
    stored_status,
)
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.reconciling.problems import EVENT_ACTION, REPORT_INTERVAL, Problem
from trainmaster.controller.redaction import redact
from trainmaster.metrics.plugins import SKIPPED
from trainmaster.runtime.framework import PluginFailed
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

RETRY_INTERVAL: Final = 60.0
"""Seconds at most until a TrainJob is reconciled again that lacks a plugin: no event tells that it works again."""

_LONGEST_FAILURE: Final = 700
_LONGEST_NOTE: Final = 900
"""Characters; a condition may have 32,768, an event 1,024 bytes."""

_MOST_TOLD: Final = 20
"""Plugins that a condition names."""


def blocking(error: PluginFailed) -> Problem:
    """Return that a TrainJob cannot be built, or its state be told, because of a plugin."""
    if error.kind_not_served:
        # All TrainJobs are reconciled when it is.
        return Problem(KIND_NOT_SERVED, str(error), retry=False)
    if error.rejected:
        return Problem(BUILD_REJECTED, str(error))
    return Problem(_reason(error), str(error))


def is_for_plugin(problem: Problem | None) -> bool:
    """Tell whether a problem goes when a plugin works again."""
    return problem is not None and problem.reason in (PLUGIN_FAILED, PLUGIN_QUARANTINED)


class SkippedPlugins:
    """Tells owners which plugins their TrainJobs go on without."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._told: dict[str, tuple[tuple[str, frozenset[tuple[str, str]]], JsonObject, float]] = {}
        """By key: the UID of the TrainJob and the plugins that were told, the condition, and when that was."""

    def report(self, key: str, raw: JsonObject, failures: Sequence[PluginFailed] | None) -> JsonObject | None:
        """Report failures if they are news, None if it was not resolved; return the condition of the TrainJob."""
        if failures is None:
            return find_condition(stored_status(raw)["conditions"], PLUGIN_SKIPPED)
        if not failures:
            self._told.pop(key, None)
            return None
        for failure in failures:
            SKIPPED.labels(failure.plugin, _reason(failure)).inc()
        uid, now = raw["metadata"]["uid"], self._clock.monotonic()
        plugins = frozenset((failure.plugin, _reason(failure)) for failure in failures)
        told, condition, at = self._told.get(key, (None, {}, 0.0))
        if told == (uid, plugins) and now - at < REPORT_INTERVAL:
            return condition
        condition = _condition(failures)
        self._told[key] = (uid, plugins), condition, now
        if told != (uid, plugins):
            log.warning("the TrainJob goes on without a plugin", plugins=sorted(plugins), message=condition["message"])
            self._recorder.event(
                raw,
                type="Warning",
                reason=PLUGIN_SKIPPED,
                action=EVENT_ACTION,
                note=condition["message"][:_LONGEST_NOTE],
            )
        return condition

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._told.pop(key, None)


def _condition(failures: Sequence[PluginFailed]) -> JsonObject:
    names = ", ".join(dict.fromkeys(failure.plugin for failure in failures[:_MOST_TOLD]))
    texts = "; ".join(_shortened(str(failure)) for failure in failures[:_MOST_TOLD])
    return {
        "type": PLUGIN_SKIPPED,
        "status": "True",
        "reason": _reason(failures[0]),
        "message": redact(f"this TrainJob goes on without {names}: {texts}"),
    }


def _reason(failure: PluginFailed) -> str:
    return PLUGIN_QUARANTINED if failure.quarantined else PLUGIN_FAILED


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_FAILURE else f"{text[:_LONGEST_FAILURE]} ..."
