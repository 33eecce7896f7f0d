"""Jobs of kubeflow.org/v1 on a whole cluster, by kubectl alone: what users of the Training Operator see."""

import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from support.commands import trainmaster
from support.kubectl import Kubectl

from trainmaster.runtime.jsontree import JsonObject

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
]

PODS = ["life-master-0", "life-worker-0", "life-worker-1", "life-worker-2"]
HOLD = "example.com/hold"
"""A scheduling gate: while the master is held, it has no address, and its workers wait for its name."""

_EXCHANGE = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("0.0.0.0", address[1]), backlog=size) as server:
        ranks = sorted(int(server.accept()[0].recv(10)) for _ in range(size - 1))
    print("heard of", *ranks, flush=True)
else:
    while True:
        try:
            socket.create_connection(address).sendall(str(rank).encode())
            break
        except OSError:
            time.sleep(0.05)
    print("sent", rank, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


def job(name: str, gate: Path, **run_policy: object) -> JsonObject:
    """A PyTorchJob of one master, which is held, and three workers; all end when the gate is there."""

    def replicas(count: int, **spec: object) -> JsonObject:
        container = {
            "name": "pytorch",
            "image": "registry.example/sendrecv:1.0",
            "command": [sys.executable, "-c", _EXCHANGE, str(gate)],
            "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
        }
        template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}}
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            **({"runPolicy": run_policy} if run_policy else {}),
            "pytorchReplicaSpecs": {"Master": replicas(1, schedulingGates=[{"name": HOLD}]), "Worker": replicas(3)},
        },
    }


def states(rows: list[list[str]], name: str = "life") -> list[str]:
    """The states of a job that a watch showed, each time that they changed; before the first there is only the age."""
    found: list[str] = []
    for row in rows:
        if len(row) > 2 and row[0] == name and row[1] not in found[-1:]:
            found.append(row[1])
    return found


async def shown(kubectl: Kubectl, *arguments: str) -> dict[str, list[str]]:
    """What `kubectl get` says of each object, by its name."""
    return {row[0]: row[1:] for row in await kubectl.rows(*arguments)}


async def pods_are(kubectl: Kubectl, *wanted: tuple[str, str]) -> None:
    """Wait until the pods, in the order of their names, have these readiness and states."""

    def reached(found: dict[str, list[str]]) -> bool:
        return sorted(found) == PODS and [(row[0], row[1]) for _, row in sorted(found.items())] == list(wanted)

    async with kubectl.watching("pods", "-l", "training.kubeflow.org/job-name=life", "--output-watch-events") as pods:
        await pods.until_shown(reached)


async def release(kubectl: Kubectl) -> None:
    """Let the master be scheduled."""
    await kubectl("patch", "pod", PODS[0], "--type=json", "-p", '[{"op": "remove", "path": "/spec/schedulingGates"}]')


async def condition(kubectl: Kubectl, kind: str) -> JsonObject:
    found = yaml.safe_load(await kubectl("get", "pytorchjob", "life", "-o", "yaml"))["status"]["conditions"]
    return next((each for each in found if each["type"] == kind), {})


async def test_a_pytorchjob_from_its_creation_to_its_end(cluster_home: Path, tmp_path: Path) -> None:
    kubectl, gate = Kubectl(cluster_home / ".trainmaster" / "kubeconfig", tmp_path), tmp_path / "go"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("life", gate)))
    async with kubectl.watching("pytorchjob") as watching:
        applied = await kubectl("apply", "-f", str(tmp_path / "job.yaml"))
        assert applied == "pytorchjob.kubeflow.org/life created\n"
        await watching.until("life", "Created")
        await pods_are(kubectl, ("0/1", "SchedulingGated"), *[("0/1", "Init:0/1")] * 3)
        assert (await shown(kubectl, "pytorchjob"))["life"][0] == "Created"
        waits = await kubectl("get", "pod", PODS[1], "-o", "jsonpath={.spec.initContainers[*].name}")
        assert waits == "init-pytorch"
        assert await kubectl("get", "pod", PODS[0], "-o", "jsonpath={.spec.initContainers}") == ""
        services = await shown(kubectl, "services", "-l", "training.kubeflow.org/job-name=life")
        assert sorted(services) == PODS
        assert {(row[1], row[3]) for row in services.values()} == {("None", "23456/TCP")}

        await release(kubectl)
        await pods_are(kubectl, *[("1/1", "Running")] * 4)
        await watching.until("life", "Running")
        selected = ("-l", "training.kubeflow.org/job-name=life,training.kubeflow.org/job-role=master", "-o", "name")
        assert (await kubectl("get", "pods", *selected)).split() == ["pod/life-master-0"]
        gate.touch()
        rows = await watching.until("life", "Succeeded")
    assert states(rows) == ["Created", "Running", "Succeeded"]
    await kubectl("wait", "--for=condition=Succeeded", "pytorchjob/life", "--timeout=60s")
    await pods_are(kubectl, *[("0/1", "Completed")] * 4)
    assert await kubectl("logs", PODS[0]) == "heard of 1 2 3\n"
    assert [await kubectl("logs", pod, "-c", "pytorch") for pod in PODS[1:]] == [f"sent {n}\n" for n in (1, 2, 3)]
    address = await kubectl("get", "pod", PODS[0], "-o", "jsonpath={.status.podIP}")
    assert address in await kubectl("logs", PODS[1], "-c", "init-pytorch")
    worker = " ".join((await kubectl("describe", "pod", PODS[1])).split())
    for fact in (
        "Controlled By: PyTorchJob/life",
        "Init Containers: init-pytorch:",
        "State: Terminated Reason: Completed Exit Code: 0",
        "MASTER_ADDR: life-master-0",
        "Started container init-pytorch",
        "Successfully assigned default/life-worker-0",
    ):
        assert fact in worker
    succeeded = await condition(kubectl, "Succeeded")
    assert succeeded["message"] == "PyTorchJob life is successfully completed."
    assert (await condition(kubectl, "Running"))["status"] == "False"
    described = await kubectl("describe", "pytorchjob", "life")
    for reason in ("SuccessfulCreatePod", "SuccessfulCreateService", "PyTorchJobSucceeded"):
        assert reason in described
    assert 'pytorchjob.kubeflow.org "life" deleted' in await kubectl("delete", "pytorchjob", "life")
    await kubectl("wait", "--for=delete", *(f"{kind}/{name}" for kind in ("pod", "service") for name in PODS))


VERSIONS = ("-o", "custom-columns=NAME:.metadata.name,VERSION:.metadata.resourceVersion,PHASE:.status.phase")
NODES = ("-o", "custom-columns=NAME:.metadata.name,VERSION:.metadata.resourceVersion,NODE:.spec.nodeName")


@pytest.fixture
async def volcano(tmp_path: Path) -> AsyncIterator[Path]:
    """The kubeconfig of a cluster whose manager lets Volcano schedule the pods of jobs."""
    home = tmp_path / "cluster"
    home.mkdir()
    (home / "manager.yaml").write_text("trainingOperator: {gangSchedulerName: volcano}\n")
    up = await trainmaster("cluster", "up", "--detach", "--config", "manager.yaml", cwd=home)
    assert up.code == 0, up.err
    yield home / ".trainmaster" / "kubeconfig"
    assert (await trainmaster("cluster", "down", cwd=home)).code == 0


async def capability(kubectl: Kubectl, cpu: str) -> None:
    patch = {"spec": {"capability": {"cpu": cpu}}}
    await kubectl("patch", "queue", "default", "--type=merge", "-p", json.dumps(patch))


async def phase_of(kubectl: Kubectl, phase: str) -> list[str]:
    """Wait for the phase of the PodGroup; returns its line."""
    await kubectl("wait", "--for=create", "podgroup/life", "--timeout=60s")
    await kubectl("wait", f"--for=jsonpath={{.status.phase}}={phase}", "podgroup/life", "--timeout=60s")
    return (await shown(kubectl, "podgroup", "-o", "wide"))["life"]


async def test_a_gang_leaves_its_queue_before_it_has_pods_and_starts_as_a_whole(volcano: Path, tmp_path: Path) -> None:
    kubectl, gate = Kubectl(volcano, tmp_path), tmp_path / "go"
    await capability(kubectl, "1m")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("life", gate)))
    async with (
        kubectl.watching("podgroup", *VERSIONS) as groups,
        kubectl.watching("pods", *NODES) as pods,
        kubectl.watching("pytorchjob") as jobs,
    ):
        await kubectl("apply", "-f", str(tmp_path / "job.yaml"))
        # Its queue has too little: not even pods are made.
        assert (await phase_of(kubectl, "Pending"))[:2] == ["Pending", "4"]
        await jobs.until("life", "Created")
        text = (
            "4/0 tasks in gang unschedulable: pod group is not ready, 4 minAvailable; queue resource quota insufficient"
        )
        assert text in await kubectl("describe", "podgroup", "life")
        assert "No resources found" in await kubectl("get", "pods")

        await capability(kubectl, "4")
        await kubectl("wait", "--for=create", "pod/life-worker-2", "--timeout=60s")
        # One of the four is held, so none of the others gets a node.
        await pods_are(kubectl, ("0/1", "SchedulingGated"), *[("0/1", "Pending")] * 3)
        waiting = '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable'
        await kubectl("wait", waiting, *(f"pod/{pod}" for pod in PODS[1:]), "--timeout=60s")
        row = (await shown(kubectl, "podgroup", "-o", "wide"))["life"]
        assert (row[0], row[1], row[-1]) == ("Inqueue", "4", "default")
        assert {row[2] for row in pods.rows} == {"<none>"}

        await release(kubectl)
        await pods_are(kubectl, *[("1/1", "Running")] * 4)
        await kubectl("wait", "--for=jsonpath={.status.running}=4", "podgroup/life", "--timeout=60s")
        row = (await shown(kubectl, "podgroup", "-o", "wide"))["life"]
        assert (row[0], row[1], row[2], row[-1]) == ("Running", "4", "4", "default")
        await jobs.until("life", "Running")
        gate.touch()
        assert states(await jobs.until("life", "Succeeded")) == ["Created", "Running", "Succeeded"]
    await kubectl("wait", "--for=delete", "podgroup/life", "--timeout=60s")
    await pods_are(kubectl, *[("0/1", "Completed")] * 4)

    phases = [row[2] for row in groups.rows]
    assert [phase for phase in dict.fromkeys(phases) if phase != "<none>"][:3] == ["Pending", "Inqueue", "Running"]
    enqueued = min(int(row[1]) for row in groups.rows if row[2] == "Inqueue")
    made = min(int(row[1]) for row in pods.rows)
    assert enqueued < made < min([int(row[1]) for row in pods.rows if row[2] != "<none>"])
    spec = await kubectl("get", "pod", PODS[1], "-o", "jsonpath={.spec.schedulerName} {.metadata.annotations}")
    assert spec == 'volcano {"scheduling.k8s.io/group-name":"life","volcano.sh/task-spec":"worker"}'
    await kubectl("delete", "pytorchjob", "life")
