"""The families of plugins: their calls, and what becomes of those that fail.

- The buckets for calls go from what a plugin should take (microseconds) over the budget for a stall of the event loop
  (0.1 s) to what is a fault by any measure.
- A call has one of these results: `success`, `rejected` (by `Rejected` or `NotReady`), `error`, `timeout` (it took too
  long), `refused` (it was not made, because the plugin is quarantined).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from trainmaster.metrics.registry import REGISTRY, Children
from trainmaster.metrics.series import Counter, Gauge, Histogram

CallResult: TypeAlias = Literal["success", "rejected", "error", "timeout", "refused"]

PLUGIN_CALLS = Counter(
    "trainmaster_plugin_calls_total", "Calls of plugins by result", ("plugin", "phase", "result"), registry=REGISTRY
)
PLUGIN_DURATION = Histogram(
    "trainmaster_plugin_call_seconds",
    "How long one call of a plugin took",
    ("plugin", "phase"),
    buckets=(0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    registry=REGISTRY,
)
QUARANTINED = Gauge(
    "trainmaster_plugin_quarantined",
    "1 while a plugin is not called because it kept failing, else 0",
    ("plugin",),
    registry=REGISTRY,
)
STUCK = Gauge(
    "trainmaster_plugin_stuck_calls",
    "Calls that exceeded the time limit and have not returned; each holds a thread until it does",
    ("plugin",),
    registry=REGISTRY,
)
SKIPPED = Counter(
    "trainmaster_plugin_skipped_total",
    "Plans of TrainJobs that were made without a plugin, because it failed or is quarantined",
    ("plugin", "reason"),
    registry=REGISTRY,
)
LOADED = Gauge("trainmaster_plugin_loaded", "1 if a plugin runs, 0 if it did not load", ("plugin",), registry=REGISTRY)

_CALLS = Children(PLUGIN_CALLS)
_DURATIONS = Children(PLUGIN_DURATION)


def observe_plugin_call(plugin: str, phase: str, seconds: float, result: CallResult) -> None:
    """Count and time one call of a plugin."""
    _CALLS[plugin, phase, result].inc()
    _DURATIONS[plugin, phase].observe(seconds)


def count_refused_call(plugin: str, phase: str) -> None:
    """Count a call that was not made."""
    _CALLS[plugin, phase, "refused"].inc()


def publish_plugin(plugin: str, *, guarded: bool) -> None:
    """Create the series of a plugin that runs, and may be quarantined if it is guarded."""
    LOADED.labels(plugin).set(1)
    if guarded:
        QUARANTINED.labels(plugin).set(0)
        STUCK.labels(plugin).set(0)
