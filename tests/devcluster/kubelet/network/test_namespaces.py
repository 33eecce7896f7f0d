"""Pods in namespaces: names, paths and addresses as on a real cluster, and a host that notices nothing."""

import os
import sys
from pathlib import Path

import pytest
from support.commands import eventually
from support.machine import needs_namespaces
from support.node import Node, first_line, sh, terminated

from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions
from trainmaster.devcluster.apiserver.resources import JOBS, PODS
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.network.addresses import host_address
from trainmaster.devcluster.kubelet.network.mode import Networking
from trainmaster.runtime.jsontree import JsonObject

USER_NAMESPACE = pytest.param(Networking("namespaces", user_namespace=True), id="user-namespace")
PRIVILEGED = pytest.param(Networking("namespaces", user_namespace=False), id="privileged")
"""Root needs no user namespace; everybody else does."""

pytestmark = [
    pytest.mark.nightly,
    needs_namespaces,
    pytest.mark.parametrize(
        "node", [USER_NAMESPACE, PRIVILEGED] if os.geteuid() == 0 else [USER_NAMESPACE], indirect=True
    ),
]


def python(script: str, **container: object) -> JsonObject:
    return {"name": "c", "image": "any", "command": [sys.executable, "-c", script], **container}


async def test_names_stay_and_ports_are_local(node: Node, kubelet: Kubelet) -> None:
    env = [
        {"name": "PET_MASTER_ADDR", "value": "demo-node-0-0.demo"},
        {"name": "PET_MASTER_PORT", "value": "29500"},
        {"name": "ENDPOINT", "value": "demo-node-0-0.demo:29500"},
    ]
    labels = {"jobset.sigs.k8s.io/jobset-name": "demo"}
    script = "echo $PET_MASTER_ADDR $PET_MASTER_PORT $ENDPOINT"
    await node.create(sh(script, env=env), labels=labels, subdomain="demo", hostname="demo-node-0-0")
    await node.phase("Succeeded")
    name, port, endpoint = (await node.log(kubelet)).split()
    assert name == "demo-node-0-0.demo"
    assert port != "29500"
    assert endpoint == f"{name}:{port}"


LOOK = """
import socket
for name in ("indexed-0.train", "indexed-1", "indexed-1.train.default.svc.cluster.local", socket.gethostname()):
    print(socket.gethostbyname(name))
print(socket.getfqdn())
server = socket.create_server((socket.gethostname(), 0))
print(server.getsockname()[0])
"""


async def test_pods_that_do_not_exist_yet_can_be_resolved(node: Node, kubelet: Kubelet) -> None:
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "suspend": True}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "any"}]}}
    job = {"metadata": {"name": "indexed", "namespace": "default"}, "spec": {**spec, "template": template}}
    await node.api.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", **job})
    labels = {"batch.kubernetes.io/job-name": "indexed"}
    await node.create(python(LOOK), labels=labels, subdomain="train", hostname="indexed-0")
    pod = await node.phase("Succeeded")
    first, second = (host_address("default", "train", f"indexed-{index}") for index in range(2))
    assert pod["status"]["podIP"] == first
    expected = [first, second, second, first, "indexed-0.train.default.svc.cluster.local", first]
    assert (await node.log(kubelet)).split() == expected


async def test_volumes_are_where_the_pod_says(node: Node, kubelet: Kubelet) -> None:
    """Also for programs that put their paths together themselves, which rewriting cannot see."""
    await node.create_data(key="from the map", other="x")
    mounts = [
        {"name": "work", "mountPath": "/workspace"},
        {"name": "work", "mountPath": "/workspace/deep/part", "subPath": "sub/dir"},
        {"name": "work", "mountPath": "/opt/tm-none/read-only", "readOnly": True},
        {"name": "map", "mountPath": "/etc/tm-config"},
        {"name": "map", "mountPath": "/etc/tm-single.txt", "subPath": "key"},
    ]
    script = """
import os
root = chr(47)
print(open(os.path.join(root, "etc", "tm-config", "key")).read(), open(root + "etc/tm-single.txt").read())
open(os.path.join(root, "workspace", "file"), "w").write("kept")
open(os.path.join(root, "workspace", "deep", "part", "inner"), "w").write("kept")
for path in ("opt/tm-none/read-only/x", "etc/tm-config/x"):
    try:
        open(root + path, "w")
    except OSError as error:
        print(error.strerror)
"""
    volumes = [{"name": "work", "emptyDir": {}}, {"name": "map", "configMap": {"name": "cm"}}]
    await node.create(python(script, volumeMounts=mounts), volumes=volumes)
    pod = await node.phase("Succeeded")
    read_only = "Read-only file system"
    assert (await node.log(kubelet)).splitlines() == ["from the map from the map", read_only, read_only]
    volume = node.directory / "pods" / pod["metadata"]["uid"] / "volumes/work"
    assert (volume / "file").read_text() == (volume / "sub/dir/inner").read_text() == "kept"
    for path in ("/opt/tm-none", "/etc/tm-config", "/etc/tm-single.txt"):
        assert not Path(path).exists()


async def test_a_volume_over_the_checkout_leaves_python_in_its_place(node: Node, kubelet: Kubelet) -> None:
    """Initializers mount /workspace, and many a checkout lives there too."""
    above = "/" + sys.prefix.split("/")[1]
    container = python("open('inside', 'w'); print('ran')", workingDir=above)
    container["volumeMounts"] = [{"name": "v", "mountPath": above}]
    await node.create(container, volumes=[{"name": "v", "emptyDir": {}}])
    pod = await node.phase("Succeeded")
    assert await node.log(kubelet) == "ran\n"
    volume = node.directory / "pods" / pod["metadata"]["uid"] / "volumes/v"
    assert (volume / "inside").exists()
    assert not Path(above, "inside").exists()


async def test_probes_see_what_the_container_sees(node: Node, kubelet: Kubelet) -> None:
    probe = {"exec": {"command": ["sh", "-c", "test -e /tm-made && hostname > /tm-v/probed"]}, "periodSeconds": 1}
    container = sh("mkdir /tm-made; sleep 60", readinessProbe=probe)
    container["volumeMounts"] = [{"name": "v", "mountPath": "/tm-v"}]
    await node.create(container, volumes=[{"name": "v", "emptyDir": {}}], hostname="pod-host")
    pod = await node.phase("Running")
    probed = node.directory / "pods" / pod["metadata"]["uid"] / "volumes/v/probed"
    await eventually(lambda: probed.exists() and probed.read_text() == "pod-host\n")
    assert not Path("/tm-made").exists()


async def test_no_mount_stays_when_a_pod_is_gone(node: Node, kubelet: Kubelet) -> None:
    before = Path("/proc/self/mounts").read_text()
    namespaces = mount_namespaces()
    await node.create(sh("echo $$$$; readlink /proc/self/ns/mnt; sleep 60"))
    await node.phase("Running")
    await first_line(node, kubelet)
    assert Path("/proc/self/mounts").read_text() == before
    inside = await eventually(lambda: mount_namespaces() - namespaces)
    await node.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    await eventually(lambda: not mount_namespaces() & inside)
    await eventually(lambda: not list((node.directory / "pods").iterdir()))


def mount_namespaces() -> set[str]:
    """The mount namespaces of all processes that can be seen."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            found.add(str((entry / "ns/mnt").readlink()))
        except OSError:
            continue
    return found


async def test_what_cannot_be_mounted_fails_with_the_reason(node: Node, kubelet: Kubelet) -> None:
    mounts = [{"name": "v", "mountPath": "/proc/tm-none"}]
    await node.create(sh("true", volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}])
    ended = terminated(await node.phase("Failed"))
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "cannot mount at /proc/tm-none: /proc shows the kernel" in ended["message"]
