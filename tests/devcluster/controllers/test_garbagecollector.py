from __future__ import annotations

from typing import Any

import pytest
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, SECRETS
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
def cluster(cluster: Stepper) -> Stepper:
    cluster.start(GarbageCollector(cluster.api))
    return cluster


def owner_of(obj: JsonObject, *, block: bool = True, **changed: Any) -> JsonObject:
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "blockOwnerDeletion": block,
        **changed,
    }


async def make(
    cluster: Stepper, name: str, *owners: JsonObject, namespace: str = "default", finalizers: list[str] | None = None
) -> JsonObject:
    metadata = {"name": name, "ownerReferences": list(owners), "finalizers": finalizers or []}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return await cluster.api.create(CONFIGMAPS, obj, namespace=namespace)


def names(cluster: Stepper) -> list[str]:
    return [obj["metadata"]["name"] for obj in cluster.objects(CONFIGMAPS)]


async def test_foreground_deletion_goes_bottom_up(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    child = await make(cluster, "child", owner_of(root))
    await make(cluster, "held", owner_of(child), finalizers=["acme.io/hold"])
    await cluster.delete(CONFIGMAPS, "root", propagation="Foreground")
    assert names(cluster) == ["child", "held", "root"]


async def test_a_restarted_collector_finds_what_was_deleted_meanwhile(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "child", "ownerReferences": [owner_of(root)]}}
    await cluster.api.create(SECRETS, secret, namespace="default")
    cluster.stop()
    await cluster.api.delete(CONFIGMAPS, "default", "root")
    cluster.start(GarbageCollector(cluster.api))
    await cluster.settle()
    assert cluster.objects(SECRETS) == []
