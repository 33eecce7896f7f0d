"""Replicas that fail: how that is counted, and what is no failure."""

from __future__ import annotations

import pytest
from support.jobworld import JobWorld, pytorchjob, replicas

from trainmaster.runtime.jsontree import JsonObject


def job(policy: str, **run_policy: object) -> JsonObject:
    return pytorchjob(master=replicas(1, policy), worker=replicas(1, policy), policy=run_policy)


async def running(obj: JsonObject) -> JobWorld:
    world = JobWorld(obj)
    await world.settle()
    world.run()
    await world.settle()
    return world


async def test_v1_b2_restarts_in_place_of_a_replaced_pod_count_once() -> None:
    """V1-B2: while a pod is there that is being replaced, its restarts are in the status already."""
    world = await running(job("OnFailure", backoffLimit=5))
    world.set_phase("demo-worker-0", "Failed", restarts=3)
    await world.settle()
    assert world.status["replicaStatuses"]["Worker"]["restarts"] == 4
    # The delete did not get through, or a finalizer holds the pod.
    world = await running(job("OnFailure", backoffLimit=5))
    world.set_phase("demo-worker-0", "Failed", restarts=3)
    counted = world.pod("demo-worker-0")["metadata"]["uid"]
    status = {**world.status, "replicaStatuses": {"Worker": {"restarts": 4, "restartedPodUIDs": [counted]}}}
    world.put({**world.job, "status": status})
    await world.settle()
    assert world.state != "Failed"


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
async def test_v1_b5_a_pod_that_fails_because_it_is_deleted_is_no_failure(policy: str) -> None:
    """V1-B5: whoever is deleted ends by a signal, and its phase is Failed until it is gone."""
    world = await running(job(policy))
    world.set_phase("demo-worker-0", "Failed", exit_code=143, deleting=True)
    await world.settle()
    assert world.state == "Running"
    world.remove("Pod", "demo-worker-0")
    await world.settle()
    assert "demo-worker-0" in world.names("Pod")


async def test_v1_b5_nor_does_it_count_for_a_limit() -> None:
    """V1-B5."""
    world = await running(job("OnFailure", backoffLimit=0))
    world.set_phase("demo-worker-0", "Failed", exit_code=143, deleting=True)
    await world.settle()
    assert world.state == "Running"
