"""Garbage collection: what happens to dependents when their owners go."""

import pytest
from support.commands import eventually
from support.conformance import Client, Collection, new_namespace
from support.samples import configmap, owner_reference

from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.controllers


def _options(policy: str) -> JsonObject:
    return {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}


async def _dependent(configmaps: Collection, name: str, *owners: JsonObject, **reference: object) -> JsonObject:
    references = [owner_reference(owner, **reference) for owner in owners]
    return await configmaps.made(configmap(name, ownerReferences=references))


async def test_dependents_go_in_the_background(configmaps: Collection) -> None:
    await _dependent(configmaps, "child", await configmaps.made(configmap("owner")))
    (await configmaps.delete("owner", _options("Background"))).ok(200)
    (await configmaps.get("owner")).refused(404)
    await configmaps.gone("child")


async def test_background_is_the_default(configmaps: Collection) -> None:
    await _dependent(configmaps, "child", await configmaps.made(configmap("owner")))
    await configmaps.delete("owner")
    await configmaps.gone("child")


async def test_dependents_of_dependents_go_as_well(configmaps: Collection) -> None:
    child = await _dependent(configmaps, "child", await configmaps.made(configmap("owner")))
    await _dependent(configmaps, "grandchild", child)
    await configmaps.delete("owner")
    await configmaps.gone("grandchild")


async def test_orphans_lose_their_reference(configmaps: Collection) -> None:
    await _dependent(configmaps, "child", await configmaps.made(configmap("owner")))
    await configmaps.delete("owner", _options("Orphan"))
    await configmaps.gone("owner")
    assert "ownerReferences" not in (await configmaps.read("child"))["metadata"]


async def test_a_foreground_deletion_waits_for_what_blocks_it(configmaps: Collection) -> None:
    """Also for the dependents of dependents: it goes bottom-up."""
    owner = await configmaps.made(configmap("owner"))
    child = await _dependent(configmaps, "child", owner, blockOwnerDeletion=True)
    await _dependent(configmaps, "grandchild", child, blockOwnerDeletion=True)
    (await configmaps.patch("grandchild", {"metadata": {"finalizers": ["example.com/hold"]}})).ok(200)
    await configmaps.delete("owner", _options("Foreground"))

    async def marked() -> bool:
        return "deletionTimestamp" in (await configmaps.read("grandchild"))["metadata"]

    await eventually(marked)
    for name in ("owner", "child"):
        assert (await configmaps.read(name))["metadata"]["finalizers"] == ["foregroundDeletion"]
    (await configmaps.patch("grandchild", {"metadata": {"finalizers": None}})).ok(200)
    await configmaps.gone("owner")
    (await configmaps.get("child")).refused(404)


async def test_a_foreground_deletion_does_not_wait_for_the_rest(configmaps: Collection) -> None:
    references = [owner_reference(await configmaps.made(configmap("owner")))]
    await configmaps.made(configmap("child", ownerReferences=references, finalizers=["example.com/hold"]))
    await configmaps.delete("owner", _options("Foreground"))
    await configmaps.gone("owner")
    (await configmaps.patch("child", {"metadata": {"finalizers": None}})).ok(200)
    await configmaps.gone("child")


async def test_another_owner_keeps_a_dependent(configmaps: Collection) -> None:
    one, two = await configmaps.made(configmap("one")), await configmaps.made(configmap("two"))
    await _dependent(configmaps, "child", one, two)
    await configmaps.delete("one")

    async def released() -> bool:
        references = (await configmaps.read("child"))["metadata"]["ownerReferences"]
        return [each["name"] for each in references] == ["two"]

    await eventually(released)
    await configmaps.delete("two")
    await configmaps.gone("child")


async def test_a_dependent_of_nobody_goes(configmaps: Collection) -> None:
    """The owner is known by its UID: another object of the same name is not it."""
    owner = await configmaps.made(configmap("owner"))
    reference = {**owner_reference(owner), "uid": "11111111-1111-1111-1111-111111111111"}
    await configmaps.made(configmap("child", ownerReferences=[reference]))
    await configmaps.gone("child")
    await configmaps.read("owner")


async def test_an_owner_in_another_namespace_is_nobody(client: Client, configmaps: Collection) -> None:
    async with new_namespace(client) as other:
        owner = await client.collection("v1", "configmaps", other).made(configmap("owner"))
        await _dependent(configmaps, "child", owner)
        await configmaps.gone("child")


async def test_a_cluster_wide_owner_is_fine(client: Client, configmaps: Collection) -> None:
    priorities = client.collection("scheduling.k8s.io/v1", "priorityclasses")
    made = await priorities.made({"metadata": {"generateName": "conformance-"}, "value": 1})
    owner = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **made}
    await _dependent(configmaps, "child", owner)
    await configmaps.made(configmap("other"))
    assert (await configmaps.read("child"))["metadata"]["ownerReferences"]
    await priorities.delete(made["metadata"]["name"])
    await configmaps.gone("child")


async def test_a_claim_is_protected(client: Client, namespace: str) -> None:
    """By a finalizer that its controller removes when no pod uses it."""
    claims = client.collection("v1", "persistentvolumeclaims", namespace)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    obj = await claims.made({"metadata": {"name": "a"}, "spec": spec})
    assert obj["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    await claims.delete("a")
    await claims.gone("a")
