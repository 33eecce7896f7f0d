"""Without traces nothing of OpenTelemetry is there; with them a manager without it runs all the same."""

import importlib
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from trainmaster.controller.configuration import Tracing
from trainmaster.controller.tracing.installed import new_tracing

WHAT_RUNS = """
import sys
from trainmaster.controller.cli.manager import run
from trainmaster.controller.configuration import Tracing
from trainmaster.controller.tracing.installed import new_tracing
from trainmaster.runtime.framework import load_plugins
load_plugins()
assert new_tracing(Tracing(sampling_rate_per_million=5)) is None
print([each for each in sys.modules if each.startswith(("opentelemetry", "requests", "google"))])
"""


@pytest.mark.nightly
def test_nothing_is_imported_while_traces_are_off() -> None:
    done = subprocess.run([sys.executable, "-c", WHAT_RUNS], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_missing_package_is_told_of_and_ends_no_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith(("opentelemetry", "trainmaster.controller.tracing."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)  # importing it raises
    installed = importlib.import_module("trainmaster.controller.tracing.installed")
    with capture_logs() as logged:
        assert installed.new_tracing(Tracing(endpoint="collector:4318")) is None
    (line,) = logged
    assert (line["log_level"], line["event"]) == ("error", "traces are configured, but nothing is traced")
    assert line["reason"].startswith("the package of opentelemetry")
    assert (
        line["hint"]
        == "`pip install 'trainmaster[tracing]'` in the image, or take tracing.endpoint out of the configuration"
    )


def test_a_variable_that_cannot_be_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "some")
    with capture_logs() as logged:
        assert new_tracing(Tracing(endpoint="collector:4318")) is None
    (line,) = logged
    assert (line["log_level"], line["event"]) == ("error", "traces are configured, but nothing is traced")
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in line["reason"]
    assert line["hint"] == "correct the variables OTEL_* of the environment"
