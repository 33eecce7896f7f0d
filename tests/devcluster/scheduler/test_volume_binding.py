"""Pods wait for their volume claims, with the words of kube-scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from support.workloads import add_node, scheduling

from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.devcluster.testing.stepper import Stepper


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    await add_node(cluster, "n", {"pods": "10"})
    cluster.start(Scheduler(cluster.api))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}}
    await cluster.api.create(PODS, body, namespace="default")
    await cluster.settle()
    return cluster


def pod(cluster: Stepper) -> tuple[str | None, str]:
    found = cluster.api.get(PODS, "default", "p")
    return found["spec"].get("nodeName"), scheduling(cluster, "p").get("message", "")


async def test_a_pod_waits_until_its_claim_exists_and_is_bound(cluster: Stepper) -> None:
    assert pod(cluster) == (None, '0/1 nodes are available: persistentvolumeclaim "data" not found.')
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data", "finalizers": ["example.com/keep"]}, "spec": spec}
    created = await cluster.api.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
    await cluster.settle()
    assert pod(cluster) == (None, "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    bound = {**created, "status": {"phase": "Bound"}}
    await cluster.api.update(PERSISTENT_VOLUME_CLAIMS, bound, subresource="status")
    await cluster.settle()
    assert pod(cluster)[0] == "n"


async def test_a_claim_that_is_being_deleted_is_none(cluster: Stepper) -> None:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data", "finalizers": ["example.com/keep"]}, "spec": spec}
    await cluster.api.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
    await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "data")
    assert pod(cluster) == (None, '0/1 nodes are available: persistentvolumeclaim "data" is being deleted.')
