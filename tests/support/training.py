"""TrainJobs that run as processes, for end-to-end tests."""

import copy
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from support.commands import TIMEOUT, client_of, eventually, trainmaster

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import NAMESPACES, PODS, Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject

until = eventually

# Every node meets the others at the address and port that the controller injected; rank 0 counts who came.
RENDEZVOUS = """
import os, socket, time
rank, nodes = int(os.environ["PET_NODE_RANK"]), int(os.environ["PET_NNODES"])
address = (os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", address[1]), backlog=nodes) as server:
        came = set()
        while len(came) < nodes - 1:
            peer, _ = server.accept()
            with peer:
                came.add(peer.recv(100))
    print("met", sorted(came), flush=True)
else:
    deadline = time.monotonic() + 240
    while True:
        try:
            with socket.create_connection(address, timeout=5) as connection:
                connection.sendall(f"{os.environ['JOB']}-{rank}".encode())
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
"""


def python(script: str) -> list[str]:
    """A command that runs a Python script."""
    return [sys.executable, "-c", script]


def runtime(name: str = "processes", *, backoff_limit: int = 0, restart_policy: str = "Never") -> JsonObject:
    """A ClusterTrainingRuntime for torch whose nodes do nothing unless the TrainJob says what."""
    container = {"name": "node", "image": "none", "command": ["true"]}
    pod = {"restartPolicy": restart_policy, "terminationGracePeriodSeconds": 1, "containers": [container]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": backoff_limit, "template": {"spec": pod}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def initialized_runtime(name: str, **pod: Any) -> JsonObject:
    """One whose nodes come after an initializer; with these fields of all pods."""
    on = runtime(name)
    jobs = on["spec"]["template"]["spec"]["replicatedJobs"]
    jobs[0]["template"]["spec"]["template"]["spec"].update(pod)
    fetches = copy.deepcopy(jobs[0])
    fetches["name"] = fetches["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "dataset-initializer"
    fetches["template"]["metadata"]["labels"] = {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}
    jobs[0]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    jobs.insert(0, fetches)
    return on


def trainjob(name: str, *, on: str = "processes", **spec: Any) -> JsonObject:
    """A TrainJob in the namespace default."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runtimeRef": {"name": on}, **spec},
    }


async def apply_runtime(client: KubeClient, obj: JsonObject) -> None:
    """Create a runtime, or bring it up to date."""
    await client.apply(CLUSTER_TRAINING_RUNTIMES, obj, field_manager="tests")


async def found(
    client: KubeClient, resource: Resource, name: str, *, namespace: str | None = "default"
) -> JsonObject | None:
    """An object, if it is there."""
    try:
        return await client.get(resource, namespace, name)
    except NotFound:
        return None


async def conditions(client: KubeClient, name: str) -> dict[str, JsonObject]:
    """The conditions of a TrainJob that hold, by type."""
    return conditions_of(await client.get(TRAINJOBS, "default", name))


def conditions_of(job: JsonObject) -> dict[str, JsonObject]:
    """The conditions of a TrainJob that hold, by type."""
    return {c["type"]: c for c in (job.get("status") or {}).get("conditions", []) if c["status"] == "True"}


async def pods(client: KubeClient, name: str, *, namespace: str = "default") -> list[JsonObject]:
    """The pods of a TrainJob."""
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    listed: list[JsonObject] = (await client.list(PODS, namespace, label_selector=selector))["items"]
    return listed


async def log_of(client: KubeClient, pod: str, *, namespace: str = "default", **options: str) -> str:
    """What a container of a pod has printed, the only one or `container`."""
    status, _, body = await client.raw("GET", PODS.path(namespace, pod, "log"), params=options, accept="*/*")
    assert status == 200, body
    return body.decode()


async def logs(client: KubeClient, name: str, *, namespace: str = "default") -> list[str]:
    """What the pods of a TrainJob have printed, sorted."""
    names = [pod["metadata"]["name"] for pod in await pods(client, name, namespace=namespace)]
    return sorted([await log_of(client, pod, namespace=namespace) for pod in names])


async def create_namespace(client: KubeClient, name: str) -> None:
    """Create a namespace."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def ended(client: KubeClient, name: str, *, namespace: str = "default", timeout: float = TIMEOUT) -> JsonObject:
    """Wait for the end of a TrainJob; returns the condition."""

    async def final() -> JsonObject | None:
        held = conditions_of(await client.get(TRAINJOBS, namespace, name))
        return held.get("Complete") or held.get("Failed")

    condition: JsonObject = await until(final, timeout=timeout)
    return condition


@asynccontextmanager
async def reporting_cluster(home: Path, certificates: Path) -> AsyncIterator[KubeClient]:
    """A cluster in `home` to whose manager trainers report, with these certificates, and the runtime of `runtime`."""
    port = free_port()
    configuration = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "featureGates": {"TrainJobStatus": True},
        "webhook": {"enabled": False, "certDir": str(certificates)},
        "statusServer": {"port": port},
        "plugins": {"options": {"trainjobstatus": {"server": f"https://127.0.0.1:{port}"}}},
    }
    (home / "config.yaml").write_text(yaml.safe_dump(configuration))
    up = await trainmaster("cluster", "up", "--detach", "--config", "config.yaml", cwd=home)
    assert up.code == 0, up.err
    try:
        async with client_of(home / ".trainmaster" / "kubeconfig") as client:
            await apply_runtime(client, runtime())
            yield client
    finally:
        await trainmaster("cluster", "down", cwd=home)
