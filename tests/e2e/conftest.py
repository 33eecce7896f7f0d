"""The cluster that a test runs on: the embedded one, unless a kubeconfig is named."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.commands import client_of
from support.team import KUBECONFIG_VARIABLE, Place, new_place

from trainmaster.controller.kube.rest.client import KubeClient


@pytest.fixture(scope="session")
def any_kubeconfig(request: pytest.FixtureRequest) -> str:
    """That of TRAINMASTER_E2E_KUBECONFIG, or of the embedded cluster of this worker."""
    given = os.environ.get(KUBECONFIG_VARIABLE)
    if given:
        return given
    home: Path = request.getfixturevalue("cluster_home")
    return str(home / ".trainmaster" / "kubeconfig")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(any_kubeconfig: str) -> AsyncIterator[Place]:
    """A namespace of a cluster with Trainmaster, for the tests of a module."""
    async with new_place(any_kubeconfig) as place:
        yield place


@pytest.fixture
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    """A client of the embedded cluster of this worker."""
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        yield client
