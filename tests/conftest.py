"""One whole cluster for all tests of a worker that want one: everything that `trainmaster cluster up` starts."""

import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.embedded import embedded
from support.rights import RightsPlugin
from support.tiers import TiersPlugin

# How long an example takes says how busy the machine is, and nothing else. The gate tries the same examples each time.
settings.register_profile("gate", deadline=None, max_examples=30, derandomize=True)
settings.register_profile("nightly", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.fixture(autouse=True)
def _jitter(request: pytest.FixtureRequest) -> None:
    """Draw the same lots in each run of a test: how long somebody waits must not decide whether it passes."""
    random.seed(request.node.nodeid)


@pytest.fixture(scope="session")
def cluster_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory in which a cluster runs; its kubeconfig is `.trainmaster/kubeconfig`."""
    with embedded(tmp_path_factory.mktemp("cluster")) as home:
        yield home


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RightsPlugin(config))
    config.pluginmanager.register(TiersPlugin())


def pytest_collection_finish() -> None:
    """Take what was collected, a million objects that live to the end, from the garbage collector: it would visit them
    all, again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many perturbation plans the simulations ran, on all workers together."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    calls = [report for report in reports if getattr(report, "when", "") == "call"]
    counts = [dict(report.user_properties).get("plans", 0) for report in calls]
    if any(counts):
        terminalreporter.write_line(f"simulated clusters: {sum(counts)} perturbation plans")
