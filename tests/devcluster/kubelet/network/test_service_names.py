"""Services as names, as the pods of training jobs use them: one headless Service for each pod."""

import sys
from dataclasses import replace
from typing import Any

import pytest
from support.commands import eventually
from support.machine import FOUND, needs_namespaces
from support.node import MODES, RESOLVING, Node, sh

from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, PODS, SERVICES
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("endpoints")]

SHARING = pytest.param(
    replace(FOUND, own_addresses=False), id="namespaces-without-own-addresses", marks=needs_namespaces
)
"""On older kernels and other machines."""

PORT = 23456


def labels(job: str, kind: str, index: int) -> dict[str, str]:
    """The labels of a pod of a PyTorchJob and the selector of its Service."""
    prefix = "training.kubeflow.org"
    return {
        f"{prefix}/job-name": job,
        f"{prefix}/operator-name": "pytorchjob-controller",
        f"{prefix}/replica-index": str(index),
        f"{prefix}/replica-type": kind,
    }


async def replica(
    node: Node, *containers: JsonObject, job: str = "pytest", kind: str = "master", index: int = 0, **spec: Any
) -> str:
    """A pod of a job, as its controller makes it."""
    name = f"{job}-{kind}-{index}"
    await node.create(*containers, name=name, labels=labels(job, kind, index), owner=f"PyTorchJob/{job}", **spec)
    return name


async def service(node: Node, *, job: str = "pytest", kind: str = "master", index: int = 0, **spec: Any) -> None:
    mark = labels(job, kind, index)
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{job}-{kind}-{index}", "labels": mark},
        "spec": {"clusterIP": "None", "selector": mark, "ports": [{"name": "pytorchjob-port", "port": PORT}], **spec},
    }
    await node.api.create(SERVICES, body, namespace="default")


def python(script: str, *arguments: str) -> JsonObject:
    return {"name": "c", "image": "any", "command": [sys.executable, "-c", script, *arguments]}


_NAMES = ("pytest-master-0", "pytest-master-0.default", "pytest-master-0.default.svc")
NAMES = (*_NAMES, "pytest-master-0.default.svc.cluster.local")

_RESOLVE = """
import socket, sys, time
for name in sys.argv[1:]:
    while True:
        try:
            print(name, *sorted({each[4][0] for each in socket.getaddrinfo(name, 80)}), flush=True)
            break
        except socket.gaierror:
            time.sleep(0.02)
"""


@RESOLVING
async def test_a_name_resolves_when_its_pod_is_ready_in_pods_that_ran_before(node: Node, kubelet: Kubelet) -> None:
    """The Service comes after the pod that asks for it, too."""
    await replica(node, python(_RESOLVE, *NAMES), kind="worker")
    asking = await node.phase("Running", name="pytest-worker-0")
    await service(node)
    own = asking["status"]["podIP"]
    gate = node.directory / "gate"
    waiting = {**sh(f"until test -e {gate}; do sleep 0.02; done"), "name": "init"}
    await replica(node, sh("sleep 600"), initContainers=[waiting])
    await node.reached(lambda pod: pod["status"].get("initContainerStatuses"), name="pytest-master-0")
    listed = await eventually(lambda: [each for each in node.api.list(ENDPOINT_SLICES)[0] if each.object["endpoints"]])
    assert listed[0].object["endpoints"][0]["conditions"]["ready"] is False
    assert await node.log(kubelet, name="pytest-worker-0") == "", "not before it is ready"
    gate.touch()
    await node.phase("Succeeded", name="pytest-worker-0")
    address = (await node.phase("Running", name="pytest-master-0"))["status"]["podIP"]
    assert address != own
    assert (await node.log(kubelet, name="pytest-worker-0")).splitlines() == [f"{name} {address}" for name in NAMES]


@RESOLVING
async def test_a_name_goes_with_its_pod_and_with_its_service(node: Node, kubelet: Kubelet) -> None:
    script = "while getent hosts pytest-master-0; do sleep 0.02; done >/dev/null"
    for delete in (PODS, SERVICES):
        if delete == PODS:
            await service(node)
            await replica(node, {**sh("exec sleep 600")}, terminationGracePeriodSeconds=0)
        else:
            await replica(node, sh("exec sleep 600"), terminationGracePeriodSeconds=0)
        await node.phase("Running", name="pytest-master-0")
        for index, container in enumerate((python(_RESOLVE, "pytest-master-0"), sh(script))):
            await replica(node, container, kind="worker", index=index)
            await node.phase("Running" if index else "Succeeded", name=f"pytest-worker-{index}")
        await node.api.delete(delete, "default", "pytest-master-0")
        await node.phase("Succeeded", name="pytest-worker-1")
        for index in range(2):
            await node.api.delete(PODS, "default", f"pytest-worker-{index}")
            await node.gone(f"pytest-worker-{index}")
        if delete == PODS:
            await node.gone("pytest-master-0")


_LISTEN = """
import socket, sys
server = socket.create_server(("0.0.0.0", int(sys.argv[2])))
print("listens", flush=True)
connection, _ = server.accept()
print(connection.recv(100).decode(), flush=True)
connection.sendall(b"x")
"""
_SEND = """
import os, socket, time
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
while True:
    try:
        connection = socket.create_connection(address)
        break
    except OSError:
        time.sleep(0.02)
connection.sendall(os.environ["POD_NAME"].encode())
print(connection.recv(1), address[1])
"""


@pytest.mark.parametrize("node", [*MODES, SHARING], indirect=True)
async def test_pods_of_several_jobs_listen_on_one_port(node: Node, kubelet: Kubelet) -> None:
    """As frameworks do, on all interfaces."""
    jobs = ("one", "two")
    port = [{"name": "pytorchjob-port", "containerPort": PORT}]
    for job in jobs:
        for kind in ("master", "worker"):
            await service(node, job=job, kind=kind)
        await replica(node, {**python(_LISTEN, "--port", str(PORT)), "ports": port}, job=job)
        send = {**python(_SEND), "name": "send", "ports": port}
        send["env"] = [
            {"name": "MASTER_ADDR", "value": f"{job}-master-0"},
            {"name": "MASTER_PORT", "value": str(PORT)},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]
        await replica(node, send, job=job, kind="worker")
    for job in jobs:
        await node.phase("Succeeded", name=f"{job}-master-0")
        await node.phase("Succeeded", name=f"{job}-worker-0")
        assert await node.log(kubelet, name=f"{job}-master-0") == f"listens\n{job}-worker-0\n"
        sent = await node.log(kubelet, name=f"{job}-worker-0", container="send")
        assert sent.startswith("b'x' ")
        if node.networking.own_addresses:
            assert sent.split()[1] == str(PORT), "ports stay as they are"


@RESOLVING
async def test_names_of_an_earlier_run_are_not_there_after_a_restart(node: Node) -> None:
    """And those that hold come back before any pod looks for them."""
    await service(node)
    async with node.running():
        await replica(node, sh("exec sleep 600"))
        await node.phase("Running", name="pytest-master-0")
    async with node.running() as kubelet:
        await node.reached(lambda pod: pod["status"]["phase"] == "Failed", name="pytest-master-0")
        await eventually(lambda: not any(each.object["endpoints"] for each in node.api.list(ENDPOINT_SLICES)[0]))
        await replica(node, sh("getent hosts pytest-master-0 || echo unknown"), kind="worker")
        await node.phase("Succeeded", name="pytest-worker-0")
        assert await node.log(kubelet, name="pytest-worker-0") == "unknown\n"


@pytest.mark.skipif(not FOUND.own_addresses, reason="the kernel does not let a filter ask another process")
@RESOLVING
async def test_all_pods_of_a_job_listen_on_one_port(node: Node, kubelet: Kubelet) -> None:
    """As the servers of TFJobs do, one in each pod."""
    for index in range(2):
        await service(node, kind="worker", index=index)
        await replica(node, python(_LISTEN, "--port", str(PORT)), kind="worker", index=index)
    for index in range(2):
        send = python(_SEND)
        send["env"] = [
            {"name": "MASTER_ADDR", "value": f"pytest-worker-{index}.default.svc"},
            {"name": "MASTER_PORT", "value": str(PORT)},
            {"name": "POD_NAME", "value": "chief"},
        ]
        await replica(node, send, kind="chief", index=index)
        await node.phase("Succeeded", name=f"pytest-worker-{index}")
