"""Queues of Volcano, without a scheduler."""

from __future__ import annotations

import pytest
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import VOLCANO_POD_GROUPS, VOLCANO_QUEUES
from trainmaster.devcluster.controllers.volcanoqueue import QueueController
from trainmaster.devcluster.crds.install import GANG_DEFINITIONS, install_definitions
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    await install_definitions(cluster.api, GANG_DEFINITIONS)
    cluster.start(QueueController(cluster.api))
    await cluster.settle()
    return cluster


async def test_the_default_queue_exists_and_counts_its_groups(cluster: Stepper) -> None:
    body: JsonObject = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": 1},
    }
    group = await cluster.api.create(VOLCANO_POD_GROUPS, body, namespace="default")
    await cluster.api.update(VOLCANO_POD_GROUPS, {**group, "status": {"phase": "Inqueue"}})
    await cluster.settle()
    queue = cluster.api.get(VOLCANO_QUEUES, None, "default")
    assert (queue["status"]["state"], queue["status"]["inqueue"]) == ("Open", 1)
    await cluster.delete(VOLCANO_POD_GROUPS, "train")
    assert cluster.api.get(VOLCANO_QUEUES, None, "default")["status"]["inqueue"] == 0
