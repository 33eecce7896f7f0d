"""Pods of a ReplicaSet, which all want the same ports, in both modes of networking."""

import asyncio
import sys

import pytest
from support.commands import TIMEOUT
from support.node import Node

from trainmaster.devcluster.apiserver.admission.webhook import Address
from trainmaster.devcluster.kubelet.kubelet import Kubelet

pytestmark = pytest.mark.nightly

_SERVE = """
import socket, sys, threading
print(sys.argv[2], flush=True)
held = socket.create_server(("0.0.0.0", int(sys.argv[2])))
threading.Event().wait()
"""


async def replica(node: Node, name: str) -> None:
    container = {
        "name": "c",
        "image": "any",
        "command": [sys.executable, "-c", _SERVE, "--port", "18081"],
        "ports": [{"containerPort": 18081}],
        "readinessProbe": {"tcpSocket": {"port": 18081}, "periodSeconds": 1},
    }
    await node.create(container, name=name, owner="ReplicaSet/web")


async def printed(node: Node, kubelet: Kubelet, name: str) -> str:
    """Wait for what the pod prints: its socket may answer before its log is written."""
    async with asyncio.timeout(TIMEOUT):
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
