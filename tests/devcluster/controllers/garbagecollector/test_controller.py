from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, NODES, SECRETS
from trainmaster.devcluster.controllers.garbagecollector.controller import GarbageCollector
from trainmaster.devcluster.testing.stepper import Stepper
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
    cluster: Stepper,
    name: str,
    *owners: JsonObject,
    namespace: str = "default",
    finalizers: list[str] | None = None,
) -> JsonObject:
    metadata = {"name": name, "ownerReferences": list(owners), "finalizers": finalizers or []}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return await cluster.api.create(CONFIGMAPS, obj, namespace=namespace)


def names(cluster: Stepper) -> list[str]:
    return [obj["metadata"]["name"] for obj in cluster.objects(CONFIGMAPS)]


async def test_background_deletion_takes_the_dependents_of_dependents(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    child = await make(cluster, "child", owner_of(root))
    await make(cluster, "grandchild", owner_of(child))
    await make(cluster, "other")
    await cluster.settle()
    await cluster.delete(CONFIGMAPS, "root", propagation="Background")
    assert names(cluster) == ["other"]


async def test_an_object_born_after_its_owner_was_deleted_goes_as_well(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    await cluster.delete(CONFIGMAPS, "root")
    await make(cluster, "late", owner_of(root))
    await cluster.settle()
    assert names(cluster) == []


async def test_a_namesake_of_the_owner_is_not_the_owner(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    await make(cluster, "child", owner_of(root))
    await cluster.api.delete(CONFIGMAPS, "default", "root")
    await make(cluster, "root")
    await cluster.settle()
    assert names(cluster) == ["root"]


async def test_one_living_owner_is_enough(cluster: Stepper) -> None:
    first, second = await make(cluster, "first"), await make(cluster, "second")
    await make(cluster, "child", owner_of(first), owner_of(second))
    await cluster.delete(CONFIGMAPS, "first")
    assert names(cluster) == ["child", "second"]
    child = cluster.api.get(CONFIGMAPS, "default", "child")
    assert [reference["name"] for reference in child["metadata"]["ownerReferences"]] == ["second"]
    await cluster.delete(CONFIGMAPS, "second")
    assert names(cluster) == []


async def test_an_owner_in_another_namespace_does_not_count(cluster: Stepper) -> None:
    await cluster.namespace("elsewhere")
    foreign = await make(cluster, "root", namespace="elsewhere")
    await make(cluster, "child", owner_of(foreign))
    await cluster.settle()
    assert names(cluster) == ["root"]


async def test_a_cluster_scoped_owner_counts_everywhere(cluster: Stepper) -> None:
    node = await cluster.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}})
    await make(cluster, "child", owner_of(node))
    await cluster.settle()
    assert names(cluster) == ["child"]


async def test_foreground_deletion_waits_for_blocking_dependents(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    await make(cluster, "held", owner_of(root), finalizers=["acme.io/hold"])
    await make(cluster, "free", owner_of(root))
    await cluster.delete(CONFIGMAPS, "root", propagation="Foreground")
    assert names(cluster) == ["held", "root"]
    held = cluster.api.get(CONFIGMAPS, "default", "held")
    await cluster.api.update(CONFIGMAPS, {**held, "metadata": {**held["metadata"], "finalizers": []}})
    await cluster.settle()
    assert names(cluster) == []


async def test_foreground_deletion_does_not_wait_for_the_others(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    await make(cluster, "held", owner_of(root, block=False), finalizers=["acme.io/hold"])
    await cluster.delete(CONFIGMAPS, "root", propagation="Foreground")
    assert names(cluster) == ["held"]
    assert "deletionTimestamp" in cluster.objects(CONFIGMAPS)[0]["metadata"]


async def test_foreground_deletion_goes_bottom_up(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    child = await make(cluster, "child", owner_of(root))
    await make(cluster, "held", owner_of(child), finalizers=["acme.io/hold"])
    await cluster.delete(CONFIGMAPS, "root", propagation="Foreground")
    assert names(cluster) == ["child", "held", "root"]


async def test_orphaned_dependents_stay_without_owner(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    await make(cluster, "child", owner_of(root))
    await cluster.delete(CONFIGMAPS, "root", propagation="Orphan")
    assert names(cluster) == ["child"]
    assert not cluster.objects(CONFIGMAPS)[0]["metadata"].get("ownerReferences")


async def test_a_restarted_collector_finds_what_was_deleted_meanwhile(cluster: Stepper) -> None:
    root = await make(cluster, "root")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "child", "ownerReferences": [owner_of(root)]}}
    await cluster.api.create(SECRETS, secret, namespace="default")
    cluster.stop()
    await cluster.api.delete(CONFIGMAPS, "default", "root")
    cluster.start(GarbageCollector(cluster.api))
    await cluster.settle()
    assert cluster.objects(SECRETS) == []
