"""How often plugins are called, how long they take, how often they fail."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from trainmaster.metrics.registry import REGISTRY

CALLS = Counter(
    "trainmaster_plugin_calls_total", "Calls of plugins by result", ("plugin", "phase", "result"), registry=REGISTRY
)
DURATION = Histogram(
    "trainmaster_plugin_call_seconds",
    "How long one call of a plugin took",
    ("plugin", "phase"),
    buckets=(0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0),
    registry=REGISTRY,
)


def observe_call(plugin: str, phase: str, seconds: float, succeeded: bool) -> None:
    """Count and time one call."""
    CALLS.labels(plugin, phase, "success" if succeeded else "error").inc()
    DURATION.labels(plugin, phase).observe(seconds)
