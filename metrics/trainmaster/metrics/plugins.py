"""How often plugins are called, how long they take, how often they fail.

Buckets go from what a plugin should take (microseconds) over the budget for a stall of the event loop (0.1 s) to what
is a fault by any measure.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from trainmaster.metrics.children import Children
from trainmaster.metrics.registry import REGISTRY

CALLS = Counter(
    "trainmaster_plugin_calls_total", "Calls of plugins by result", ("plugin", "phase", "result"), registry=REGISTRY
)
DURATION = Histogram(
    "trainmaster_plugin_call_seconds",
    "How long one call of a plugin took",
    ("plugin", "phase"),
    buckets=(0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    registry=REGISTRY,
)

_CALLS = Children(CALLS)
_DURATIONS = Children(DURATION)


def observe_call(plugin: str, phase: str, seconds: float, succeeded: bool) -> None:
    """Count and time one call."""
    _CALLS[plugin, phase, "success" if succeeded else "error"].inc()
    _DURATIONS[plugin, phase].observe(seconds)
