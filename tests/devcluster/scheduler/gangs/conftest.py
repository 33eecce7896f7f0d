"""One node with four GPUs, the scheduler and the queues of Volcano."""

from __future__ import annotations

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import GPU, add_node

from trainmaster.devcluster.controllers.volcanoqueue import QueueController
from trainmaster.devcluster.crds.install import GANG_DEFINITIONS, install_definitions
from trainmaster.devcluster.scheduler.scheduler import Scheduler


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    await install_definitions(cluster.api, GANG_DEFINITIONS)
    await add_node(cluster, "laptop", {"cpu": "8", "memory": "8Gi", GPU: "4", "pods": "50"})
    cluster.start(Scheduler(cluster.api), QueueController(cluster.api))
    await cluster.settle()
    return cluster
