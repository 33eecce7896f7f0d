"""Pods of a ReplicaSet, which all want the same ports, in both modes of networking."""

from __future__ import annotations

import asyncio
import sys

import pytest
from support.namespaces import FOUND, needs_namespaces
from support.node import LIMIT, Node

from trainmaster.devcluster.apiserver.admission.webhook import Address
from trainmaster.devcluster.apiserver.resources import PODS, SERVICES
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.network.addresses import service_address

pytestmark = pytest.mark.nightly

_SERVE = """
import socket, sys, threading
print(sys.argv[2], flush=True)
held = socket.create_server(("0.0.0.0", int(sys.argv[2])))
threading.Event().wait()
"""


async def replica(node: Node, name: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    container = {
        "name": "c",
        "image": "any",
        "command": [sys.executable, "-c", _SERVE, "--port", "18081"],
        "ports": [{"containerPort": 18081}],
        "readinessProbe": {"tcpSocket": {"port": 18081}, "periodSeconds": 1},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
        "spec": {"restartPolicy": "Never", "nodeName": "laptop", "containers": [container]},
    }
    await node.api.create(PODS, pod)


async def printed(node: Node, kubelet: Kubelet, name: str) -> str:
    """Wait for what the pod prints: its socket may answer before its log is written."""
    async with asyncio.timeout(LIMIT):
        while not (log := await node.log(kubelet, name=name)).endswith("\n"):
            await asyncio.sleep(0.005)
    return log


async def test_replicas_listen_beside_each_other_and_are_found(node: Node, kubelet: Kubelet) -> None:
    places = set()
    for name in ("a", "b"):
        await replica(node, name)
        pod = await node.reached(
            lambda pod: (
                any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])
                if pod["status"].get("conditions")
                else False
            ),
            name=name,
        )
        place = kubelet.locate("default", name, Address(pod["status"]["podIP"], 18081))
        port = int(await printed(node, kubelet, name))
        assert place.port == port
        if node.networking.own_addresses:
            assert place == (pod["status"]["podIP"], 18081)
        places.add(place)
    assert len(places) == 2


async def test_a_pod_that_is_not_here_is_where_it_says(kubelet: Kubelet) -> None:
    assert kubelet.locate("default", "elsewhere", Address("10.1.2.3", 80)) == ("10.1.2.3", 80)


@pytest.mark.parametrize("node", [pytest.param(FOUND, id="namespaces", marks=needs_namespaces)], indirect=True)
async def test_the_hosts_file_names_services_with_an_address(node: Node, kubelet: Kubelet) -> None:
    for name, address in (("web", None), ("headless", "None")):
        spec = {"ports": [{"port": 80}], "selector": {"app": "web"}, **({"clusterIP": address} if address else {})}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        await node.api.create(SERVICES, body, namespace="kube-system")
    await node.create({"name": "c", "image": "any", "command": ["cat", "/etc/hosts"]})
    await node.phase("Succeeded")
    lines = [line.split() for line in (await node.log(kubelet)).splitlines()]
    address = service_address("kube-system", "web", cluster=kubelet.cluster)
    assert [address, "web.kube-system.svc.cluster.local", "web.kube-system.svc", "web.kube-system"] in lines
    assert not [line for line in lines if "headless" in " ".join(line)]
