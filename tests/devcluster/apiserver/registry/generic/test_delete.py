"""Deletion: at once, marked, graceful, of many."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, JOBS, NAMESPACES, PODS
from trainmaster.devcluster.apiserver.selectors import parse_label_selector
from trainmaster.runtime.jsontree import copy_tree


async def config_map(api: Api, name: str = "a", **metadata: Any) -> dict[str, Any]:
    return await api.create(CONFIGMAPS, {"metadata": {"name": name, **metadata}}, namespace="default")


async def pod(api: Api, *, node: str | None = "node-1", phase: str = "Running") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "a", "image": "x"}]}
    if node:
        spec["nodeName"] = node
    made = copy_tree(await api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default"))
    made["status"]["phase"] = phase
    return await api.update(PODS, made, namespace="default", subresource="status")


async def test_an_object_that_nothing_holds_goes_at_once(api: Api) -> None:
    made = await config_map(api)
    watch = api.watch(CONFIGMAPS, since=api.revision)
    last, gone = await api.delete(CONFIGMAPS, "default", "a")
    assert gone
    assert last["metadata"]["uid"] == made["metadata"]["uid"]
    event = await anext(watch)
    assert (event.type, event.revision) == ("DELETED", api.revision)
    assert event.object is not None
    assert event.object["metadata"]["resourceVersion"] == str(api.revision)
    with pytest.raises(StatusError, match='configmaps "a" not found'):
        await api.delete(CONFIGMAPS, "default", "a")


@pytest.mark.parametrize(
    ("propagation", "finalizers"), [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])]
)
async def test_propagation_is_left_to_the_garbage_collector(api: Api, propagation: Any, finalizers: list[str]) -> None:
    await config_map(api)
    marked, gone = await api.delete(CONFIGMAPS, "default", "a", options=DeleteOptions(propagation=propagation))
    assert not gone
    assert marked["metadata"]["finalizers"] == finalizers
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:05Z"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_later_deletion_may_change_its_mind_about_dependents(api: Api) -> None:
    await config_map(api)
    await api.delete(CONFIGMAPS, "default", "a", options=DeleteOptions(propagation="Foreground"))
    marked, _ = await api.delete(CONFIGMAPS, "default", "a", options=DeleteOptions(propagation="Orphan"))
    assert marked["metadata"]["finalizers"] == ["orphan"]
    before = api.revision
    await api.delete(CONFIGMAPS, "default", "a")
    assert api.revision == before, "a deletion that says nothing leaves things as they are"
    _, gone = await api.delete(CONFIGMAPS, "default", "a", options=DeleteOptions(propagation="Background"))
    assert gone


async def test_jobs_leave_their_pods_behind_by_default(api: Api) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}}
    await api.create(JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}}, namespace="default")
    marked, gone = await api.delete(JOBS, "default", "j")
    assert not gone
    assert marked["metadata"]["finalizers"] == ["orphan"]


@pytest.mark.parametrize(
    "options", [DeleteOptions(uid="other"), DeleteOptions(resource_version="1")], ids=["uid", "version"]
)
async def test_preconditions_protect_another_object_of_the_name(api: Api, options: DeleteOptions) -> None:
    await config_map(api)
    with pytest.raises(StatusError, match="Precondition failed") as caught:
        await api.delete(CONFIGMAPS, "default", "a", options=options)
    assert caught.value.code == 409
    assert api.get(CONFIGMAPS, "default", "a")


async def test_a_running_pod_stays_for_its_grace_period(api: Api) -> None:
    await pod(api)
    marked, gone = await api.delete(PODS, "default", "p")
    assert not gone
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:35Z"
    marked, _ = await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=60))
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30, "a grace period never grows"
    marked, _ = await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=5))
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:10Z"
    _, gone = await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    assert gone


@pytest.mark.parametrize(("node", "phase"), [(None, "Pending"), ("node-1", "Succeeded"), ("node-1", "Failed")])
async def test_nobody_waits_for_a_pod_without_processes(api: Api, node: str | None, phase: str) -> None:
    await pod(api, node=node, phase=phase)
    assert (await api.delete(PODS, "default", "p"))[1]


async def test_a_pod_with_a_finalizer_outlives_its_processes(api: Api) -> None:
    """The job controller counts a pod before it lets it go."""
    made = copy_tree(await pod(api))
    made["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    await api.update(PODS, made, namespace="default")
    await api.delete(PODS, "default", "p")
    marked, gone = await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    assert not gone
    marked = copy_tree(marked)
    marked["metadata"]["finalizers"] = []
    await api.update(PODS, marked, namespace="default")
    assert api.list(PODS)[0] == []


async def test_a_pod_in_its_grace_period_survives_the_loss_of_its_finalizers(api: Api) -> None:
    made = copy_tree(await pod(api))
    made["metadata"]["finalizers"] = ["example.com/x"]
    await api.update(PODS, made, namespace="default")
    marked = copy_tree((await api.delete(PODS, "default", "p"))[0])
    marked["metadata"]["finalizers"] = []
    await api.update(PODS, marked, namespace="default")
    assert api.get(PODS, "default", "p")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_namespaces_of_the_cluster_are_protected(api: Api, name: str) -> None:
    with pytest.raises(StatusError, match="this namespace may not be deleted") as caught:
        await api.delete(NAMESPACES, None, name)
    assert caught.value.code == 403


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    await config_map(api, "a", labels={"app": "x"})
    await config_map(api, "b", labels={"app": "y"})
    await config_map(api, "c", labels={"app": "x"}, finalizers=["example.com/x"])
    found = await api.delete_collection(CONFIGMAPS, "default", labels=parse_label_selector("app=x"))
    assert [obj["metadata"]["name"] for obj in found] == ["a", "c"]
    left = {record.metadata["name"]: "deletionTimestamp" in record.metadata for record in api.list(CONFIGMAPS)[0]}
    assert left == {"b": False, "c": True}
