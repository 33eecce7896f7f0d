"""The end of persistent volume claims; that of PodGroups is in the tests of the gang scheduler."""

import pytest
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.admission.plugins.storageobjectinuseprotection import claim_admission
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from trainmaster.devcluster.controllers.protection import pvc_protection
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    cluster.api.add_admission(PERSISTENT_VOLUME_CLAIMS, claim_admission())
    cluster.start(pvc_protection(cluster.api))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name in ("a", "b"):
        claim = {"metadata": {"name": name}, "spec": spec}
        made = await cluster.api.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    await cluster.settle()
    return cluster


async def _pod(cluster: Stepper, name: str, claim: str, **spec: str) -> None:
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    containers = [{"name": "main", "image": "i", "command": ["true"]}]
    pod: JsonObject = {"metadata": {"name": name}, "spec": {"containers": containers, "volumes": volumes, **spec}}
    await cluster.api.create(PODS, pod, namespace="default")


async def test_an_unused_claim_goes_at_once(cluster: Stepper) -> None:
    await _pod(cluster, "waiting", "a")
    await _pod(cluster, "other", "b", nodeName="local")
    await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "a")
    await cluster.settle()
    assert not cluster.exists(PERSISTENT_VOLUME_CLAIMS, "a")


async def test_a_claim_goes_with_the_last_pod_that_uses_it(cluster: Stepper) -> None:
    await _pod(cluster, "one", "a", nodeName="local")
    await _pod(cluster, "two", "a", nodeName="local")
    await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "a")
    for pod in ("one", "two"):
        await cluster.settle()
        assert "deletionTimestamp" in cluster.api.get(PERSISTENT_VOLUME_CLAIMS, "default", "a")["metadata"]
        await cluster.end_pod(cluster.api.get(PODS, "default", pod))
    await cluster.settle()
    assert not cluster.exists(PERSISTENT_VOLUME_CLAIMS, "a")


async def test_other_finalizers_stay(cluster: Stepper) -> None:
    claim = cluster.api.get(PERSISTENT_VOLUME_CLAIMS, "default", "a")
    metadata = {**claim["metadata"], "finalizers": [*claim["metadata"]["finalizers"], "example.com/hold"]}
    await cluster.api.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": metadata})
    await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "a")
    await cluster.settle()
    left = cluster.api.get(PERSISTENT_VOLUME_CLAIMS, "default", "a")
    assert left["metadata"]["finalizers"] == ["example.com/hold"]
