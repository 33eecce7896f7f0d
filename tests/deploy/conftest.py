"""What a failed test of a deployment leaves behind: the state of the cluster and the logs of the managers."""

import shutil
import sys
from collections.abc import AsyncIterator, Generator

import pytest
import pytest_asyncio
from support.deployed import Deployed
from support.machine import FOUND

_REPORT = pytest.StashKey[pytest.TestReport]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = ""
    if shutil.which("kubectl") is None:
        reason = "there is no kubectl"
    elif not FOUND.own_addresses:
        reason = (
            f"replicas cannot have addresses of their own here: {FOUND.reason or 'no user notification of seccomp'}"
        )
    for item in items if reason else ():
        if item.get_closest_marker("deploy") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_REPORT] = report
    return report


@pytest_asyncio.fixture(loop_scope="module")
async def told(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Print what there is to know after a test that failed."""
    yield
    report = request.node.stash.get(_REPORT, None)
    cluster = request.node.funcargs.get("cluster")
    if report is not None and report.failed and isinstance(cluster, Deployed):
        sys.stdout.write(await cluster.report())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what was measured, on all workers: the pages in docs/ quote it."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, text in report.user_properties:
                    if name == "measured":
                        terminalreporter.write_line(str(text))
