"""Init containers that wait for the name of a pod, as those of PyTorchJobs do."""

import pytest
from support.commands import eventually
from support.node import RESOLVING, Node, sh

from trainmaster.devcluster.apiserver.registry import pod_summary
from trainmaster.devcluster.apiserver.resources import PODS, SERVICES
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("endpoints")]

GETENT = "until getent hosts master; do echo waiting for master; sleep 0.05; done"
NSLOOKUP = (
    "err=1;for i in $(seq 100); do if nslookup master; then err=0 && break; fi;"
    "echo waiting for master; sleep 0.05; done; exit $err"
)
"""The script of the training operator, but for the pauses."""


def init(script: str) -> JsonObject:
    return {"name": "init-pytorch", "image": "alpine:3", "command": ["sh", "-c", script]}


@RESOLVING
@pytest.mark.parametrize("script", [GETENT, NSLOOKUP], ids=["getent", "nslookup"])
async def test_a_worker_waits_for_its_master(node: Node, kubelet: Kubelet, script: str) -> None:
    await node.create(sh("echo trains"), name="worker", initContainers=[init(script)])
    waiting = await node.reached(
        lambda pod: "running" in pod["status"].get("initContainerStatuses", [{}])[0].get("state", {}), name="worker"
    )
    assert waiting["status"]["phase"] == "Pending"
    assert waiting["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    conditions = {each["type"]: each for each in waiting["status"]["conditions"]}
    assert conditions["Initialized"]["message"] == "containers with incomplete status: [init-pytorch]"
    assert (pod_summary.readiness(waiting), pod_summary.state(waiting)) == ("0/1", "Init:0/1")
    path = node.directory / "pods" / waiting["metadata"]["uid"] / "logs/init-pytorch/0.log"
    await eventually(lambda: path.exists() and path.read_text().count("waiting for master") > 2)

    spec = {"clusterIP": "None", "selector": {"role": "master"}, "ports": [{"port": 23456}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "master"}, "spec": spec}
    await node.api.create(SERVICES, service, namespace="default")
    await node.create(sh("exec sleep 600"), name="m", labels={"role": "master"})
    ended = (await node.phase("Succeeded", name="worker"))["status"]["initContainerStatuses"][0]
    assert (ended["state"]["terminated"]["reason"], ended["ready"], ended["restartCount"]) == ("Completed", True, 0)
    assert await node.log(kubelet, name="worker") == "trains\n"
    text = await node.log(kubelet, name="worker", container="init-pytorch")
    address = node.api.get(PODS, "default", "m")["status"]["podIP"]
    assert text.startswith("waiting for master\n" if script == GETENT else "Server:")
    assert address in text.splitlines()[-1 if script == GETENT else -2]
    started = [message for _, reason, message in node.events("worker") if reason == "Started"]
    assert "Started container init-pytorch" in started


async def test_the_lookup_programs_of_pods_come_first(node: Node, kubelet: Kubelet) -> None:
    """Also under a volume that would hide them, and with those of the host in the way."""
    container = sh(
        "nslookup localhost; nslookup -type=srv localhost; nslookup localhost 8.8.8.8; nslookup; nslookup ''"
    )
    volume = {"name": "v", "emptyDir": {}}
    container["volumeMounts"] = [{"name": "v", "mountPath": str(node.directory.parent)}]
    await node.create(container, volumes=[volume])
    await node.phase("Failed")
    text = await node.log(kubelet)
    assert "Name:\tlocalhost\nAddress: 127.0.0.1\n" in text
    assert "nslookup: records of type srv are not known: this nslookup stands in for the real one in pods" in text
    assert "nslookup: the server 8.8.8.8 cannot be asked: this nslookup stands in" in text
    assert "usage: nslookup" in text
    assert "** server can't find : NXDOMAIN" in text
