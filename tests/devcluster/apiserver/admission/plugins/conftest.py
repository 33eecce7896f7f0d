"""A cluster with the built-in admission plugins."""

import pytest
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.bootstrap import add_system_priority_classes, register_plugins


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    register_plugins(cluster.api)
    await add_system_priority_classes(cluster.api)
    return cluster
