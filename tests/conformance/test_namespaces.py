"""Namespaces: what they start with, and how they end."""

import pytest
from support.commands import eventually
from support.conformance import NAMESPACE_PATIENCE, Client, Collection, unique
from support.samples import configmap

from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def held_namespace(client: Client, namespaces: Collection) -> tuple[str, Collection]:
    """A namespace whose end is held up by the ConfigMap `a` in it, and its ConfigMaps."""
    name = unique("held")
    await namespaces.made({"metadata": {"name": name}})
    configmaps = client.collection("v1", "configmaps", name)
    await configmaps.made(configmap("a", finalizers=["example.com/hold"]))
    return name, configmaps


async def _release(configmaps: Collection) -> None:
    (await configmaps.patch("a", {"metadata": {"finalizers": None}})).ok(200)


async def test_a_namespace_starts_as_active(namespaces: Collection, namespace: str) -> None:
    obj = await namespaces.read(namespace)
    assert obj["status"] == {"phase": "Active"}
    assert obj["spec"] == {"finalizers": ["kubernetes"]}
    assert obj["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    assert "generation" not in obj["metadata"]
    assert await namespaces.names(fieldSelector=f"status.phase=Active,metadata.name={namespace}") == [namespace]


async def test_the_label_of_a_namespace_comes_back(namespaces: Collection, namespace: str) -> None:
    """Selectors of webhooks and policies rely on it."""
    change = {"metadata": {"labels": {"kubernetes.io/metadata.name": None, "other": "1"}}}
    obj = (await namespaces.patch(namespace, change)).ok(200)
    assert obj["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace, "other": "1"}


async def test_a_namespace_is_terminating_until_it_is_empty_and_takes_nothing_new(
    namespaces: Collection, held_namespace: tuple[str, Collection]
) -> None:
    name, configmaps = held_namespace
    obj = (await namespaces.delete(name)).ok(200)
    assert (obj["kind"], obj["status"]["phase"]) == ("Namespace", "Terminating")
    obj = await namespaces.read(name)
    assert (obj["status"]["phase"], "deletionTimestamp" in obj["metadata"]) == ("Terminating", True)

    async def refused() -> JsonObject | None:
        # Tolerance: the check of a real server may look at a state that is a moment old.
        answer = await configmaps.create(configmap(unique("late")))
        return answer.refused(403, "Forbidden") if answer.status == 403 else None

    status = await eventually(refused)
    assert status is not None
    text = f"unable to create new content in namespace {name} because it is being terminated"
    assert status["message"].endswith(text)
    assert "NamespaceTerminating" in {cause["reason"] for cause in status["details"]["causes"]}
    await _release(configmaps)


@pytest.mark.controllers
@pytest.mark.timeout(3 * NAMESPACE_PATIENCE)
async def test_the_content_of_a_namespace_goes_with_it(namespaces: Collection, client: Client) -> None:
    name = unique("full")
    await namespaces.made({"metadata": {"name": name}})
    configmaps = client.collection("v1", "configmaps", name)
    await configmaps.made(configmap("a"))
    await namespaces.delete(name)
    await namespaces.gone(name, patience=NAMESPACE_PATIENCE)
    (await configmaps.get("a")).refused(404)


@pytest.mark.controllers
@pytest.mark.timeout(3 * NAMESPACE_PATIENCE)
async def test_a_held_namespace_goes_in_the_end(namespaces: Collection, held_namespace: tuple[str, Collection]) -> None:
    name, configmaps = held_namespace
    await namespaces.delete(name)

    async def marked() -> bool:
        return "deletionTimestamp" in (await configmaps.read("a"))["metadata"]

    await eventually(marked, timeout=NAMESPACE_PATIENCE)
    await namespaces.read(name)
    await _release(configmaps)
    await namespaces.gone(name, patience=NAMESPACE_PATIENCE)


async def test_only_finalize_writes_the_finalizers_of_the_spec(namespaces: Collection, namespace: str) -> None:
    obj = (await namespaces.patch(namespace, {"spec": {"finalizers": []}})).ok(200)
    assert obj["spec"]["finalizers"] == ["kubernetes"]
    obj["spec"]["finalizers"].append("example.com/mine")
    new = (await namespaces.put(obj, subresource="finalize")).ok(200)
    assert set(new["spec"]["finalizers"]) == {"kubernetes", "example.com/mine"}
    new["spec"]["finalizers"] = ["kubernetes"]
    (await namespaces.put(new, subresource="finalize")).ok(200)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_namespaces_of_the_system_cannot_be_deleted(namespaces: Collection, name: str) -> None:
    status = (await namespaces.delete(name, dryRun="All")).refused(403, "Forbidden")
    assert status["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


async def test_the_usual_namespaces_are_there(namespaces: Collection) -> None:
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= set(await namespaces.names())
