"""Deletion: at once, marked, graceful, of many."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, PODS
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


@pytest.mark.parametrize(("node", "phase"), [("node-1", "Succeeded"), ("node-1", "Failed")])
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
