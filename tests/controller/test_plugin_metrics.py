"""Plugins that take their time."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from support.series import value_of

from trainmaster.controller.plugin_metrics import PluginCallObserver


def sample(suffix: str, **labels: str) -> float | None:
    return value_of(f"trainmaster_plugin_{suffix}", labels)


def test_a_slow_call_is_logged_once_by_name() -> None:
    observe = PluginCallObserver()
    with capture_logs() as logs:
        observe("Quick", "build", 0.1, True)
        for seconds in (0.25, 3.0):
            observe("Sluggish", "build", seconds, True)
        observe("Sluggish", "status", 0.2, False)
    logged = [(entry["log_level"], entry["plugin"], entry["phase"], entry["seconds"]) for entry in logs]
    assert logged == [("warning", "Sluggish", "build", 0.25), ("warning", "Sluggish", "status", 0.2)]
    labels = {"plugin": "Sluggish", "phase": "build"}
    assert sample("call_seconds_sum", **labels) == pytest.approx(3.25)
    assert sample("call_seconds_bucket", **labels, le="0.1") == 0
    assert sample("call_seconds_bucket", **labels, le="0.3") == 1
    assert sample("calls_total", **labels, result="success") == 2
    assert sample("calls_total", plugin="Sluggish", phase="status", result="error") == 1
