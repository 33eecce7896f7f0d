"""Plugins that take their time, and plugins that fail."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from support.series import value_of

from trainmaster.controller.plugins.observer import LOG_INTERVAL, PluginCallObserver
from trainmaster.runtime.framework.calls import TimeLimitExceeded
from trainmaster.runtime.framework.interface import NotReady, Rejected


def sample(suffix: str, **labels: str) -> float | None:
    return value_of(f"trainmaster_plugin_{suffix}", labels)


def raised(error: BaseException) -> BaseException:
    """An error as it is caught."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_a_slow_call_is_logged_once_by_name() -> None:
    observe = PluginCallObserver()
    with capture_logs() as logs:
        observe("Quick", "build", 0.1, None)
        for seconds in (0.25, 3.0):
            observe("Sluggish", "build", seconds, None)
        observe("Sluggish", "status", 0.2, Rejected("no"))
    logged = [(entry["log_level"], entry["plugin"], entry["phase"], entry["seconds"]) for entry in logs]
    assert logged == [("warning", "Sluggish", "build", 0.25), ("warning", "Sluggish", "status", 0.2)]
    labels = {"plugin": "Sluggish", "phase": "build"}
    assert sample("call_seconds_sum", **labels) == pytest.approx(3.25)
    assert sample("call_seconds_bucket", **labels, le="0.1") == 0
    assert sample("call_seconds_bucket", **labels, le="0.3") == 1
    assert sample("calls_total", **labels, result="success") == 2


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (KeyError("region"), "error"),
        (SystemExit(3), "error"),
        (Rejected("no"), "rejected"),
        (NotReady("not yet"), "rejected"),
        (TimeLimitExceeded("took longer than 5 s in build"), "timeout"),
    ],
)
def test_calls_are_counted_by_result(error: BaseException, result: str) -> None:
    labels = {"plugin": f"counted-{type(error).__name__}", "phase": "build", "result": result}
    with capture_logs():
        PluginCallObserver()(labels["plugin"], "build", 0.0, error)
    assert sample("calls_total", **labels) == 1


def test_an_error_is_logged_with_its_traceback_once_for_each_place() -> None:
    """A `KeyError` without file and line is no help to the author of a plugin."""
    now = 0.0
    observe = PluginCallObserver(now=lambda: now)
    error = raised(KeyError("region"))
    with capture_logs() as logs:
        observe("acme", "build", 0.0, error)
        observe("acme", "build", 0.0, error)
        observe("acme", "validate", 0.0, error)
        observe("acme", "build", 0.0, raised(Rejected("answers are no errors")))
        now = LOG_INTERVAL
        observe("acme", "build", 0.0, error)
    assert [(entry["log_level"], entry["plugin"], entry["phase"]) for entry in logs] == [
        ("error", "acme", "build"),
        ("error", "acme", "validate"),
        ("error", "acme", "build"),
    ]
    assert logs[0]["error"] == "KeyError: 'region'"
    assert logs[0]["exc_info"].__traceback__.tb_frame.f_code.co_name == "raised"
