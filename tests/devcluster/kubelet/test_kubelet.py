"""The kubelet with the real API and real processes, in both modes of networking."""

import errno
import itertools
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.commands import TIMEOUT, eventually
from support.node import Node, alive, first_line, sh, terminated

from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, PatchType
from trainmaster.devcluster.apiserver.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from trainmaster.devcluster.apiserver.storage import Journal, Store
from trainmaster.devcluster.kubelet import pod_worker
from trainmaster.devcluster.kubelet.directories import RootDirectory
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.node_status import is_ready
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly


async def test_the_node_is_registered_with_real_capacity(node: Node, kubelet: Kubelet) -> None:
    await eventually(lambda: node.api.list(NODES)[0])
    found = node.api.get(NODES, None, "laptop")
    assert found["metadata"]["labels"]["kubernetes.io/hostname"] == "laptop"
    assert int(found["status"]["capacity"]["cpu"]) >= 1
    assert found["status"]["allocatable"]["memory"].endswith("Ki")
    ready = [c for c in found["status"]["conditions"] if c["type"] == "Ready"]
    assert [c["status"] for c in ready] == ["True"]


async def test_short_pods_cost_few_writes(node: Node, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod is short if it ends within the window in which statuses are merged, however slow the machine is."""
    monkeypatch.setattr(pod_worker, "_ANSWER_WINDOW", TIMEOUT)
    monkeypatch.setattr(pod_worker, "_MERGE_WINDOW", TIMEOUT)
    await eventually(lambda: kubelet.supervisor_pid)
    before = node.store.revision
    await node.create(sh("true"))
    await node.phase("Succeeded")
    assert node.store.revision - before <= 3


async def test_pods_of_other_nodes_are_left_alone(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh("true"), name="other", nodeName="elsewhere")
    await node.create(sh("true"))
    await node.phase("Succeeded")
    assert node.api.get(PODS, "default", "other")["status"]["phase"] == "Pending"


async def test_who_adds_a_container_for_debugging_is_told_that_it_does_not_run(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh("sleep 600"))
    await node.phase("Running")
    debugging = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1"}]}}
    where = ("default", "p")
    await node.api.patch(PODS, *where, debugging, patch_type=PatchType.MERGE, subresource="ephemeralcontainers")
    pod = await node.reached(lambda pod: pod["status"].get("ephemeralContainerStatuses"))
    (shown,) = pod["status"]["ephemeralContainerStatuses"]
    assert shown["name"] == "debug"
    assert "does not run containers for debugging" in shown["state"]["terminated"]["message"]
    assert pod["status"]["phase"] == "Running"


async def test_init_containers_share_volumes_with_the_main_one(node: Node, kubelet: Kubelet) -> None:
    mounts = [{"name": "work", "mountPath": "/workspace"}]
    first = sh("echo from init > /workspace/file", volumeMounts=mounts) | {"name": "init"}
    volumes = [{"name": "work", "emptyDir": {}}]
    await node.create(sh("cat /workspace/file", volumeMounts=mounts), initContainers=[first], volumes=volumes)
    pod = await node.phase("Succeeded")
    assert await node.log(kubelet) == "from init\n"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_environment_and_expansion_reach_the_process(node: Node, kubelet: Kubelet) -> None:
    env = [
        {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['idx']"}}},
        {"name": "RANK", "value": "rank-$(INDEX)"},
    ]
    script = (
        "echo $(RANK) $HOSTNAME $KUBERNETES_SERVICE_PORT $OMP_NUM_THREADS; pwd; test -w . -a -w $HOME -a -w $TMPDIR"
    )
    resources = {"requests": {"cpu": "1500m"}}
    await node.create(sh(script, env=env, resources=resources), labels={"idx": "7"}, hostname="host-0")
    await node.phase("Succeeded")
    first, directory = (await node.log(kubelet)).splitlines()
    assert first == "rank-7 host-0 16443 2"
    assert Path(directory).is_relative_to(node.directory)


async def test_working_directory_inside_and_outside_of_volumes(node: Node, kubelet: Kubelet) -> None:
    mounted = sh("pwd", workingDir="/data/sub", volumeMounts=[{"name": "v", "mountPath": "/data"}])
    private = sh("pwd", workingDir="/app") | {"name": "private"}
    await node.create(mounted, private, volumes=[{"name": "v", "emptyDir": {}}])
    await node.phase("Succeeded")
    seen, private_directory = await node.log(kubelet), (await node.log(kubelet, container="private")).strip()
    if node.networking.mode == "namespaces":
        assert (seen, private_directory) == ("/data/sub\n", "/app")
        return
    assert seen.endswith("/volumes/v/sub\n")
    assert private_directory.startswith(str(node.directory))
    assert private_directory.endswith("/root/app")


async def test_a_container_without_a_command_fails_the_pod(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh("sleep 60"), {"name": "image-only", "image": "docker.io/any:1"}, restartPolicy="Never")
    status = (await node.phase("Failed"))["status"]
    assert status["reason"] == "ImageEntrypointUnknown"
    assert "set `command`" in status["message"]


async def test_a_pod_that_is_always_restarted_waits_instead(node: Node, kubelet: Kubelet) -> None:
    """A ReplicaSet replaces a failed pod at once, so that failing would make pods without end."""
    await node.create({"name": "image-only", "image": "docker.io/any:1"}, restartPolicy="Always")
    pod = await node.reached(lambda pod: pod["status"].get("containerStatuses"))
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert (pod["status"]["phase"], waiting["reason"]) == ("Pending", "ImageEntrypointUnknown")
    assert "set `command`" in waiting["message"]


async def test_claims_are_bound_shared_and_removed(node: Node, kubelet: Kubelet) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "ws", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await node.api.create(PERSISTENT_VOLUME_CLAIMS, claim)
    options: JsonObject = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "ws"}}]}
    mounts = [{"name": "v", "mountPath": "/workspace"}]
    await node.create(sh("echo model > /workspace/m", volumeMounts=mounts), name="writer", **options)
    await node.phase("Succeeded", name="writer")
    await node.create(sh("cat /workspace/m", volumeMounts=mounts), **options)
    await node.phase("Succeeded")
    assert await node.log(kubelet) == "model\n"
    live = node.api.get(PERSISTENT_VOLUME_CLAIMS, "default", "ws")
    assert (live["status"]["phase"], live["status"]["capacity"]) == ("Bound", {"storage": "1Gi"})
    directory = node.directory / "claims/default/ws"
    assert directory.is_dir()
    await node.api.delete(PERSISTENT_VOLUME_CLAIMS, "default", "ws")
    await eventually(lambda: not directory.exists())


async def test_a_pod_that_somebody_calls_evicted_is_stopped(node: Node, kubelet: Kubelet) -> None:
    """So a controller that replaces evicted pods can be tried: nothing is evicted here by itself."""
    await node.create(sh("trap 'echo stopped; exit 5' TERM; echo ready; while :; do sleep 0.02; done"))
    await node.phase("Running")
    await first_line(node, kubelet)
    running = node.api.get(PODS, "default", "p")
    status = {**running["status"], "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource."}
    await node.api.update(PODS, {**running, "status": status}, subresource="status")
    pod = await node.reached(lambda pod: "terminated" in pod["status"]["containerStatuses"][0]["state"])
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Evicted")
    assert pod["status"]["message"] == "The node was low on resource."
    assert terminated(pod)["exitCode"] == 5
    assert (await node.log(kubelet)).endswith("stopped\n")


async def test_fifty_pods_run_side_by_side(node: Node, kubelet: Kubelet) -> None:
    """A gang needs all its pods at once: each waits until all have come."""
    script = "touch $(DIR)/$HOSTNAME; while [ `ls $(DIR) | wc -l` -lt 50 ]; do sleep 0.05; done"
    (node.directory / "meeting").mkdir()
    env = [{"name": "DIR", "value": str(node.directory / "meeting")}]
    for number in range(50):
        await node.create(sh(script, env=env), name=f"p{number}")
    for number in range(50):
        await node.phase("Succeeded", name=f"p{number}")


async def test_ports_of_a_job_are_kept_over_a_restart_and_freed_with_its_last_pod(node: Node) -> None:
    ports = node.directory / "ports.json"
    async with node.running():
        await node.create(sh("sleep 60", ports=[{"containerPort": 29500}]), subdomain="train", restartPolicy="Always")
        await node.phase("Running")
        before = ports.read_text()
        assert "default/train" in before
    async with node.running():
        await node.phase("Running")
        assert ports.read_text() == before
        await node.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
        await eventually(lambda: "default/train" not in ports.read_text())


async def test_an_idle_node_is_not_written_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real kubelet writes the Node when it has changed; what was read back is what was written."""
    monkeypatch.setattr("trainmaster.devcluster.kubelet.kubelet._HEARTBEAT_INTERVAL", 0.001)
    minutes = itertools.count()
    node.clock = lambda: datetime.now(UTC) + timedelta(minutes=next(minutes))
    looks = 0

    def count(live: JsonObject, *, wanted: JsonObject) -> bool:
        nonlocal looks
        looks += 1
        return is_ready(live, wanted=wanted)

    monkeypatch.setattr("trainmaster.devcluster.kubelet.kubelet.is_ready", count)
    written: list[str] = []
    node.store.subscribe(NODES, lambda event: written.append(event.type))
    async with node.running():
        await eventually(lambda: looks >= 20)
    assert written == ["ADDED", "MODIFIED"]
    looks = 0
    async with node.running():
        await eventually(lambda: looks >= 20)
    assert written == ["ADDED", "MODIFIED"], "nor does a restart write it"
    assert node.api.get(NODES, None, "laptop")["status"]["capacity"]["pods"] == "1k"


async def test_a_node_and_claims_that_a_full_disk_refuses_are_written_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.devcluster.kubelet.kubelet._RETRY_DELAY", 0.01)
    node = Node(tmp_path / "state")
    node.store = Store(journal=Journal(tmp_path / "journal"))
    node.api = Api(node.store, builtin_registry())
    await create_system_namespaces(node.api)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec}
    await node.api.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")

    def phase() -> Any:
        return node.api.get(PERSISTENT_VOLUME_CLAIMS, "default", "c")["status"]["phase"]

    refused = 0
    append = Journal.append

    def refuse(*_: Any) -> None:
        nonlocal refused
        refused += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Journal, "append", refuse)
    async with node.running():
        await eventually(lambda: refused >= 4)
        assert (node.api.list(NODES)[0], phase()) == ([], "Pending")
        monkeypatch.setattr(Journal, "append", append)
        await eventually(lambda: node.api.list(NODES)[0] and phase() == "Bound")
    node.store.close()


async def test_a_pod_may_do_what_the_user_may_as_the_guide_says(node: Node, kubelet: Kubelet, tmp_path: Path) -> None:
    """What docs/embedded-cluster.md says it does not protect from: files, the token, processes and the network."""
    token = tmp_path / "token"
    token.write_text("of the administrator")
    token.chmod(0o600)
    spaces = "readlink /proc/self/ns/net /proc/self/ns/pid"
    script = f"id -u; {spaces}; kill -0 {os.getpid()} && echo reached; cat {token}; echo changed > {tmp_path}/new"
    await node.create(sh(script, securityContext={"runAsUser": 12345, "readOnlyRootFilesystem": True}))
    await node.phase("Succeeded")
    own = [os.readlink(f"/proc/self/ns/{space}") for space in ("net", "pid")]  # noqa: PTH115 - no file behind it
    expected = [str(os.getuid()), *own, "reached", "of the administrator"]
    assert (await node.log(kubelet)).splitlines() == expected
    assert (tmp_path / "new").read_text() == "changed\n"


async def test_stopping_the_kubelet_ends_all_processes(node: Node) -> None:
    async with node.running() as kubelet:
        await node.create(sh("echo $$$$; sleep 60"))
        await node.phase("Running")
        pid = int(await first_line(node, kubelet))
        assert temporary(node).is_dir()
    assert not alive(pid)
    assert not temporary(node).exists()


def temporary(node: Node) -> Path:
    return RootDirectory(node.directory).pod("any").tmp.parent


async def test_a_dead_supervisor_is_replaced_and_its_containers_count_as_killed(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh("sleep 60"))
    await node.phase("Running")
    supervisor = kubelet.supervisor_pid
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    ended = terminated(await node.phase("Failed"))
    assert (ended["exitCode"], ended["signal"]) == (137, 9)
    await node.create(sh("true"), name="next")
    await node.phase("Succeeded", name="next")


async def test_the_state_directory_is_private(node: Node, kubelet: Kubelet) -> None:
    await eventually(lambda: kubelet.supervisor_pid)
    assert node.directory.stat().st_mode & 0o777 == 0o700
