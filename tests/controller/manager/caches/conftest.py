"""A clock that stands still, and a server whose time it is."""

from __future__ import annotations

import pytest
from support.caches import Cluster
from support.virtualtime import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster(clock: VirtualClock) -> Cluster:
    return Cluster(clock)
