"""Which worker runs which tests, and in which order.

A worker gets whole modules, so that a cluster that a module shares is started once, and the longest modules first, so
that none of them is still at work when everything else has ended. A directory whose tests share one cluster goes to
one worker as well. The simulated clusters share nothing but the undisturbed run of their scenario: a worker gets
scenarios, or of the long ones of the whole matrix single tests. The pages of the documentation need nothing of each
other, and all of them together would take one worker longer than anything else.
"""

from __future__ import annotations

import os
from itertools import groupby
from operator import attrgetter
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARING = ("tests/conformance/", "tests/sdk/")
"""Directories whose tests share a cluster."""

SIMULATED = "tests/sim/"

PAGES = "tests/e2e/test_examples.py::"
"""Tests that share only the cluster that each worker has."""


class ModuleScheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Hands out modules in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        for directory in SHARING:
            if nodeid.startswith(directory):
                return directory
        if nodeid.startswith(SIMULATED):
            # The parameter is the scenario, or begins with it.
            _, _, parameter = nodeid.rstrip("]").partition("[")
            alone = os.environ.get("TRAINMASTER_MATRIX") or not parameter
            return nodeid if alone else SIMULATED + parameter.partition("/")[0]
        return nodeid if nodeid.startswith(PAGES) else nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Put modules first that are marked as slow, by the seconds that they take."""
    modules = [list(module) for _, module in groupby(items, attrgetter("path"))]
    modules.sort(key=lambda module: -_seconds(module[0]))
    items[:] = [item for module in modules for item in module]


def _seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("slow")
    return float(marker.kwargs["seconds"]) if marker else 0.0
