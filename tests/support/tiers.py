"""The two tiers of the suite: the gate, which judges every change, and the nightly, which runs everything.

A test of the gate runs in this process, on clocks that are given to it, with servers in memory or in this process; it
may start no process. Whatever needs processes, real clocks or minutes carries the mark `nightly`, by itself or by its
directory. `tests/smoke` alone starts processes in the gate: its tests share one embedded cluster.
"""

import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
NIGHTLY = (
    "bench", "dashboards", "deploy", "docs/site", "e2e", "image", "sdk", "soak", "upgrade",
)  # fmt: skip
"""Directories whose tests are all nightly. The gate does not even import them."""
_NIGHTLY = tuple(f"{TESTS / directory}/" for directory in NIGHTLY)

SMOKE = TESTS / "smoke"
GATE = "not nightly"
"""The expression of marks by which `make test` selects the gate."""

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})


class TiersPlugin:
    """Marks what is nightly by its directory, and fails tests of the gate that start processes."""

    def __init__(self) -> None:
        self._in_gate = False
        platform.platform(terse=True)  # runs uname(1) for the first caller, which would be a test of a kubelet
        sys.addaudithook(self._heard)

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Leave out directories of which the gate selects nothing."""
        return True if config.option.markexpr == GATE and _is_nightly(collection_path) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the tests of nightly directories; let `-k R-23` find what a test proves."""
        for item in items:
            if _is_nightly(item.path):
                item.add_marker("nightly")
            for mark in (*item.iter_markers("guarantee"), *item.iter_markers("defect")):
                item.extra_keyword_matches.update(mark.args)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch over a test of the gate."""
        self._in_gate = item.get_closest_marker("nightly") is None and SMOKE not in item.path.parents
        try:
            return (yield)
        finally:
            self._in_gate = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        """Leave to its last test no process by which the cluster of a session ends."""
        self._in_gate = self._in_gate and nextitem is not None
        return (yield)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._in_gate and event in _STARTS:
            msg = f"a test of the gate starts a process ({event}): mark it `nightly`, or let it call functions instead"
            raise AssertionError(msg)


def _is_nightly(path: Path) -> bool:
    return f"{path}/".startswith(_NIGHTLY)
