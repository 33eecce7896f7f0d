"""Deployments, Services and budgets for tests, and pods that become ready when a test says so."""

from typing import Any

from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import DEPLOYMENTS, NODES, PODS, REPLICA_SETS
from trainmaster.runtime.jsontree import JsonObject, copy_tree

LABELS = {"app": "web"}
GPU = "nvidia.com/gpu"


async def add_node(
    cluster: Stepper, name: str, allocatable: dict[str, str], *, labels: JsonObject | None = None
) -> None:
    """Add a node of which pods may take so much."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}}
    created = await cluster.api.create(NODES, node)
    await cluster.api.update(NODES, {**created, "status": {"allocatable": allocatable}}, subresource="status")


def bound(cluster: Stepper) -> list[str]:
    """Return the names of the pods that have a node."""
    return [each["metadata"]["name"] for each in cluster.objects(PODS) if each["spec"].get("nodeName")]


def scheduling(cluster: Stepper, name: str) -> JsonObject:
    """Return the condition that says whether a pod was scheduled."""
    conditions = cluster.api.get(PODS, "default", name)["status"].get("conditions", [])
    found: JsonObject = next((each for each in conditions if each["type"] == "PodScheduled"), {})
    return found


def template(*, image: str = "img:1", labels: JsonObject | None = None, **container: Any) -> JsonObject:
    """Return the template of pods with one container."""
    main = {"name": "main", "image": image, "command": ["true"], **container}
    return {"metadata": {"labels": labels or LABELS}, "spec": {"containers": [main]}}


def deployment(**spec: Any) -> JsonObject:
    """Return a Deployment of three pods."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": LABELS}, "template": template(), **spec},
    }


def replicaset(**spec: Any) -> JsonObject:
    """Return a ReplicaSet of three pods."""
    return {**deployment(**spec), "kind": "ReplicaSet"}


def service(**spec: Any) -> JsonObject:
    """Return a Service of the pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": LABELS, "ports": [{"port": 443, "targetPort": 9443}], **spec},
    }


async def change_deployment(cluster: Stepper, **spec: Any) -> None:
    """Change fields of the spec, and let everything that follows happen."""
    live = cluster.api.get(DEPLOYMENTS, "default", "web")
    await cluster.api.update(DEPLOYMENTS, {**copy_tree(live), "spec": {**live["spec"], **spec}})
    await cluster.settle()


async def make_ready(cluster: Stepper, pod: JsonObject, *, address: str = "") -> None:
    """Let a pod run and be ready, with an address if it shall have one."""
    await cluster.set_pod(pod, "Running")
    if address:
        live = cluster.api.get(PODS, "default", pod["metadata"]["name"])
        status = {**live["status"], "podIP": address}
        await cluster.api.update(PODS, {**live, "status": status}, namespace="default", subresource="status")
        await cluster.settle()


def sizes(cluster: Stepper) -> dict[str, int]:
    """Return the sizes of the ReplicaSets by the image of their pods."""
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: each["spec"]["replicas"]
        for each in cluster.objects(REPLICA_SETS)
    }


def terminating(cluster: Stepper) -> list[JsonObject]:
    """Return the pods whose deletion was requested."""
    return [pod for pod in cluster.objects(PODS) if "deletionTimestamp" in pod["metadata"]]
