"""A server that keeps one lease, in virtual time."""

import pytest
from support.leases import LeaseServer
from support.virtualtime import VirtualClock


@pytest.fixture
def virtual() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def api() -> LeaseServer:
    return LeaseServer()
