"""Jobs whose pods do not start, each for a reason of its own, on a whole cluster: explain finds it in first place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.commands import client_of
from support.explained import explained, explanation, runtime_with
from support.training import apply_runtime, create_namespace, python, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, NAMESPACES, Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE = "explain-waiting"
CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True)
IMAGE = "registry.invalid/team/train:1"


def claim(name: str, **spec: Any) -> JsonObject:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": HERE},
        "spec": wanted,
    }


def mounting(name: str, source: JsonObject) -> JsonObject:
    return {
        "volumes": [{"name": name, **source}],
        "container": {"volumeMounts": [{"name": name, "mountPath": f"/{name}"}]},
    }


def variable(source: str, name: str, key: str) -> JsonObject:
    return {"container": {"env": [{"name": "X", "valueFrom": {source: {"name": name, "key": key}}}]}}


def affinity(key: str, value: str) -> JsonObject:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


CASES: dict[str, tuple[JsonObject, str, tuple[str, ...]]] = {
    "memory": (
        {"container": {"resources": {"requests": {"memory": "900Ti"}}}},
        "Unschedulable",
        ("Insufficient memory", "too little for a pod", "add larger nodes"),
    ),
    "gpus": (
        {"container": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}},
        "Unschedulable",
        ("it asks for 8 of nvidia.com/gpu, which no node has",),
    ),
    "selector": (
        {"nodeSelector": {"disk": "nvme"}},
        "Unschedulable",
        ("it selects nodes by disk=nvme; no node has the label", "kubectl label node trainmaster disk=nvme"),
    ),
    "affinity": (affinity("zone", "moon"), "Unschedulable", ("its node affinity demands zone In [moon]",)),
    "no-claim": (
        mounting("data", {"persistentVolumeClaim": {"claimName": "nobody-made-it"}}),
        "VolumePending",
        ("it does not exist", "create the claim nobody-made-it in the namespace " + HERE),
    ),
    "unbound": (
        mounting("data", {"persistentVolumeClaim": {"claimName": "fast"}}),
        "VolumePending",
        ('storageclass.storage.k8s.io "fast.invalid" not found', "with another storageClassName"),
    ),
    "image": (
        {"container": {"image": IMAGE}, "imagePullSecrets": [{"name": "regcred"}]},
        "ImagePullFailed",
        (IMAGE, "lookup registry.invalid: no such host", "image pull secrets (regcred)", "correct the registry"),
    ),
    "image-name": (
        {"container": {"image": "Team/Train:1"}},
        "ImagePullFailed",
        ("repository name (Team/Train) must be lowercase", "correct the name of the image"),
    ),
    "no-secret": (
        variable("secretKeyRef", "token", "hf"),
        "ContainerConfigError",
        ('CreateContainerConfigError: secret "token" not found', f"create the Secret token in the namespace {HERE}"),
    ),
    "no-key": (
        variable("configMapKeyRef", "kube-root-ca.crt", "epochs"),
        "ContainerConfigError",
        ("couldn't find key epochs in ConfigMap", "put the key epochs into the ConfigMap kube-root-ca.crt"),
    ),
    "no-volume": (
        mounting("settings", {"configMap": {"name": "settings"}}),
        "ContainerConfigError",
        ('for volume "settings" : configmap "settings" not found', "create the ConfigMap settings"),
    ),
    "no-file": (
        mounting("ca", {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "no", "path": "no"}]}}),
        "ContainerConfigError",
        ("references non-existent config key: no", "put the key no into the ConfigMap kube-root-ca.crt"),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    """A cluster on which all the jobs wait side by side."""
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        await create_namespace(client, HERE)
        await client.create(CLAIMS, claim("fast", storageClassName="fast.invalid"))
        for name, (pod, _, _) in CASES.items():
            await apply_runtime(client, runtime_with(f"waiting-{name}", **pod))
            image = {"image": pod["container"]["image"]} if "image" in pod.get("container", {}) else {}
            job = trainjob(name, on=f"waiting-{name}", trainer={"numNodes": 2, **image, "command": ["true"]})
            job["metadata"]["namespace"] = HERE
            await client.create(TRAINJOBS, job)
        yield client
        await client.delete(NAMESPACES, None, HERE)


@pytest.mark.parametrize("name", CASES)
async def test_the_reason_comes_first(client: KubeClient, cluster_home: Path, name: str) -> None:
    _, cause, words = CASES[name]
    said = await explained(cluster_home, name, cause, *words, namespace=HERE)
    assert said["causes"][0]["certainty"] == "certain"
    assert said["state"]["name"] == "Waiting"


async def test_a_job_goes_on_when_what_was_missing_comes_and_then_has_no_cause(
    client: KubeClient, cluster_home: Path
) -> None:
    script = "import os, time; assert os.path.exists(os.environ['AT'] + '/epochs'); time.sleep(600)"
    pod = mounting("late", {"configMap": {"name": "late"}})
    await apply_runtime(client, runtime_with("waiting-late", **pod))
    trainer = {"command": python(script), "env": [{"name": "AT", "value": "/late"}]}
    job = trainjob("late", on="waiting-late", trainer=trainer)
    job["metadata"]["namespace"] = HERE
    await client.create(TRAINJOBS, job)
    await explained(cluster_home, "late", "ContainerConfigError", "create the ConfigMap late", namespace=HERE)
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late", "namespace": HERE}}
    await client.create(CONFIGMAPS, {**settings, "data": {"epochs": "3"}})

    async def runs() -> bool:
        said = await explanation(cluster_home, "late", HERE)
        return bool(said["state"]["name"] == "Running" and not said["causes"])

    await until(runs)
