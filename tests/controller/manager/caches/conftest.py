"""A server whose time is that of a clock that stands still."""

import pytest
from support.caches import Cluster
from support.virtualtime import VirtualClock


@pytest.fixture
def cluster(clock: VirtualClock) -> Cluster:
    return Cluster(clock)
