"""Ways in which jobs fail, or do not start, of both APIs: what is said of them is the same wherever one looks.

`run` starts the jobs of a case, and follows those that end. Then explain finds the cause in first place, all that show
jobs (`support.job_faces`) agree with it, and each command that is advised is run.
"""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.commands import Finished, client_of, trainmaster
from support.explained import delete_runtimes, runtime_with, says
from support.job_faces import agreed, commands_in, explanation, paste
from support.training import create_namespace, python, trainjob, until

from trainmaster.controller.kube.rest.resources import NAMESPACES, Resource
from trainmaster.devcluster.cluster import NODE_NAME
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
AT_ONCE = 4
"""Cases."""

RANK_1 = """
import os, time
address = os.environ.get("PET_MASTER_ADDR") or os.environ["MASTER_ADDR"]
port = int(os.environ.get("PET_MASTER_PORT") or os.environ["MASTER_PORT"])
rank = os.environ.get("PET_NODE_RANK") or os.environ["RANK"]
if rank != "1":
    time.sleep(600)
"""
LOST_PEER = (
    RANK_1.partition("if rank")[0]
    + """
import signal, socket
if rank == "1":
    while True:
        try:
            peer = socket.create_connection((address, port))
            break
        except OSError:
            time.sleep(0.05)
    fail()
peer, _ = socket.create_server(("", port)).accept()
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as for the first process of a container
while peer.recv(100):
    pass
raise ConnectionError("Connection closed by peer [10.0.0.7]:29500")
"""
)
TIMED_OUT = "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined."
IMAGE = "registry.invalid/team/train:1"
SLEEPS = python("import time; time.sleep(600)")
NO_DISK = {"persistentVolumeClaim": {"claimName": "nobody-made-it"}}
GPUS = {"container": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}}


def initial(script: str) -> JsonObject:
    return {
        "name": "fetch",
        "image": "i",
        "command": python(script),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def mounting(name: str, source: JsonObject, **container: Any) -> JsonObject:
    mounts = [{"name": name, "mountPath": f"/{name}"}]
    return {"volumes": [{"name": name, **source}], "container": {"volumeMounts": mounts, **container}}


def variable(source: str, name: str, key: str) -> JsonObject:
    return {"env": [{"name": "X", "valueFrom": {source: {"name": name, "key": key}}}]}


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "fast", "namespace": "unbound"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast.invalid",
    },
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A way to fail, or not to start."""

    cause: str
    words: tuple[str, ...] = ()
    """What evidence and advice have to say, in both APIs."""

    command: list[str] = field(default_factory=lambda: list(SLEEPS))
    pod: Mapping[str, Any] = field(default_factory=dict)
    """As of `runtime_with`."""

    policy: Mapping[str, Any] = field(default_factory=dict)
    """In the spec of a TrainJob, and the runPolicy of a V1 job."""

    nodes: int = 1
    failed_node: int | None = None
    """Which one failed by itself."""

    said: str = ""
    """What that one printed last."""

    restarts: int = 0
    gang: JsonObject | None = None
    """The podGroupPolicy, which only runtimes of TrainJobs have."""

    needs: tuple[JsonObject, ...] = ()
    """What is created before."""

    is_v1_too: bool = True


FAILED: dict[str, Case] = {
    "exits": Case(
        cause="ContainerFailed",
        words=("exit code 1", "ValueError: my loss is NaN", "trainmaster logs"),
        command=python(RANK_1 + "raise ValueError('my loss is NaN')"),
        nodes=2,
        failed_node=1,
        said="ValueError: my loss is NaN",
    ),
    "no-program": Case(
        cause="ContainerFailed",
        words=("exit code 128, StartError", '"torchrum": executable file not found', "correct the command"),
        command=["torchrum", "train.py"],
        failed_node=0,
    ),
    "no-package": Case(
        cause="ContainerFailed",
        words=("correct the name transformerz, or install the package that has it",),
        command=python("import transformerz"),
        failed_node=0,
        said="No module named 'transformerz'",
    ),
    "crashes": Case(
        cause="ContainerFailed",
        words=("exit code 139", "SIGSEGV", "read its log"),
        command=python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
        failed_node=0,
    ),
    "memory": Case(
        cause="OutOfMemory",
        words=("exit code 137, OOMKilled", "its limit of memory is 150Mi", "300Mi would be twice that"),
        command=python("def fail():\n    held = bytearray(300 << 20)\n    time.sleep(600)\n" + LOST_PEER),
        pod={"container": {"resources": {"limits": {"memory": "150Mi"}}}},
        nodes=2,
        failed_node=1,
    ),
    "init": Case(
        cause="InitContainerFailed",
        words=("container fetch failed with exit code 1", "OSError: no such bucket"),
        command=["true"],
        pod={"initContainers": [initial("raise OSError('no such bucket')")]},
    ),
    "init-name": Case(
        cause="InitContainerFailed",
        words=("gaierror",),
        command=["true"],
        pod={"initContainers": [initial("import socket; socket.getaddrinfo('peer.nowhere.example', 29500)")]},
    ),
    "names": Case(
        cause="NameResolutionFailed",
        words=("socket.gaierror", "exit code 1"),
        command=python("import socket; socket.getaddrinfo('explained-node-0-7.nowhere', 29500)"),
        failed_node=0,
    ),
    "rendezvous": Case(
        cause="RendezvousTimeout",
        words=("1 of 2 ranks were there", "network policy"),
        command=python(f"raise RuntimeError({TIMED_OUT!r})"),
        failed_node=0,
        said=TIMED_OUT,
    ),
    "peer": Case(
        cause="ContainerFailed",
        words=("KeyError: 'learning_rate'",),
        command=python("def fail(): raise KeyError('learning_rate')\n" + LOST_PEER),
        nodes=2,
        failed_node=1,
        said="KeyError: 'learning_rate'",
    ),
    "early": Case(
        cause="ContainerFailed",
        words=("ended first, with exit code 0", "Connection closed by peer"),
        command=python("def fail(): raise SystemExit(0)\n" + LOST_PEER),
        nodes=2,
        failed_node=0,
        said="Connection closed by peer",
    ),
    "refused": Case(
        cause="ContainerFailed",
        words=("which address refused is not known", "rank 0 listens there"),
        command=python("import socket; socket.create_connection(('127.0.0.1', 9))"),
        failed_node=0,
        said="Connection refused",
    ),
    "too-often": Case(
        cause="ContainerFailed",
        words=("my loss is NaN",),
        command=python("raise ValueError('my loss is NaN')"),
        pod={"backoff_limit": 1, "restart_policy": "OnFailure"},
        policy={"backoffLimit": 1},
        failed_node=0,
        said="ValueError: my loss is NaN",
        restarts=1,
        is_v1_too=False,  # its container is known from its pod alone, so the history names the limit
    ),
    "too-slow": Case(cause="DeadlineExceeded", words=("activeDeadlineSeconds",), policy={"activeDeadlineSeconds": 1}),
    # That no node could take it, is the reason why it took so long.
    "too-slow-for-gpus": Case(
        cause="Unschedulable", words=("nvidia.com/gpu",), pod=GPUS, policy={"activeDeadlineSeconds": 2}
    ),
}

WAITING: dict[str, Case] = {
    "too-large": Case(
        cause="Unschedulable",
        words=("Insufficient memory", "too little for a pod", "add larger nodes"),
        pod={"container": {"resources": {"requests": {"memory": "900Ti"}}}},
    ),
    "gpus": Case(cause="Unschedulable", words=("it asks for 8 of nvidia.com/gpu, which no node has",), pod=GPUS),
    "selector": Case(
        cause="Unschedulable",
        words=("it selects nodes by disk=nvme; no node has the label", f"kubectl label node {NODE_NAME} disk=nvme"),
        pod={"nodeSelector": {"disk": "nvme"}},
    ),
    "affinity": Case(
        cause="Unschedulable",
        words=("its node affinity demands zone In [moon]",),
        pod={
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["moon"]}]}
                        ]
                    }
                }
            }
        },
    ),
    # A claim is in the way before a secret is.
    "no-claim": Case(
        cause="VolumePending",
        words=("it does not exist", "create the claim nobody-made-it in the namespace no-claim"),
        pod=mounting("data", NO_DISK, **variable("secretKeyRef", "nobody-made-it", "k")),
    ),
    "unbound": Case(
        cause="VolumePending",
        words=('storageclass.storage.k8s.io "fast.invalid" not found', "with another storageClassName"),
        pod=mounting("data", {"persistentVolumeClaim": {"claimName": "fast"}}),
        needs=(CLAIM,),
    ),
    "image": Case(
        cause="ImagePullFailed",
        words=(IMAGE, "lookup registry.invalid: no such host", "image pull secrets (regcred)", "correct the registry"),
        pod={"container": {"image": IMAGE}, "imagePullSecrets": [{"name": "regcred"}]},
    ),
    "image-name": Case(
        cause="ImagePullFailed",
        words=("repository name (Team/Train) must be lowercase", "correct the name of the image"),
        pod={"container": {"image": "Team/Train:1"}},
    ),
    "no-secret": Case(
        cause="ContainerConfigError",
        words=('CreateContainerConfigError: secret "token" not found', "create the Secret token in the namespace"),
        pod={"container": variable("secretKeyRef", "token", "hf")},
    ),
    "no-key": Case(
        cause="ContainerConfigError",
        words=("couldn't find key epochs in ConfigMap", "put the key epochs into the ConfigMap kube-root-ca.crt"),
        pod={"container": variable("configMapKeyRef", "kube-root-ca.crt", "epochs")},
    ),
    "no-volume": Case(
        cause="ContainerConfigError",
        words=('for volume "settings" : configmap "settings" not found', "create the ConfigMap settings"),
        pod=mounting("settings", {"configMap": {"name": "settings"}}),
    ),
    "no-file": Case(
        cause="ContainerConfigError",
        words=("references non-existent config key: no", "put the key no into the ConfigMap kube-root-ca.crt"),
        pod=mounting("ca", {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "no", "path": "no"}]}}),
    ),
    "on-hold": Case(
        cause="Suspended", words=("trainmaster resume",), pod={"container": {"image": IMAGE}}, policy={"suspend": True}
    ),
    "elsewhere": Case(
        cause="AnotherManagerLeads",
        words=("anagedBy is kueue.x-k8s.io/multikueue",),
        policy={"managedBy": "kueue.x-k8s.io/multikueue"},
    ),
    "together": Case(
        cause="GangIncomplete",
        words=("starts when 3 of its pods can", "Insufficient cpu"),
        nodes=3,
        gang={"coscheduling": {}},
    ),
    "at-once": Case(
        cause="GangIncomplete", words=("starts when 3 of its pods can", "overused"), nodes=3, gang={"volcano": {}}
    ),
    "gang-image": Case(
        cause="ImagePullFailed", words=(IMAGE,), pod={"container": {"image": IMAGE}}, gang={"coscheduling": {}}
    ),
    "sidecar": Case(
        cause="SidecarRunning",
        words=("mesh",),
        command=["true"],
        pod={"containers": [{"name": "mesh", "image": "i", "command": SLEEPS}]},
    ),
    "crash-loop": Case(
        cause="ContainerFailed",
        words=("my loss is NaN",),
        command=python("raise ValueError('my loss is NaN')"),
        pod={"backoff_limit": 9, "restart_policy": "OnFailure"},
        policy={"backoffLimit": 9},
        failed_node=0,
        said="ValueError: my loss is NaN",
    ),
}
CASES = FAILED | WAITING


def manifests(name: str, case: Case, cpus: str) -> list[JsonObject]:
    """The jobs of a case, `demo` and `demo-v1`, and what they need."""
    pod = {key: value for key, value in case.pod.items() if key != "containers"}
    others = list(case.pod.get("containers", ()))
    obj = runtime_with(f"matrix-{name}", **pod)
    (node,) = obj["spec"]["template"]["spec"]["replicatedJobs"]
    spec = node["template"]["spec"]["template"]["spec"]
    spec["containers"] += others
    if case.gang is not None:
        if case.nodes > 1:  # each takes the whole node
            spec["containers"][0]["resources"] = {"requests": {"cpu": cpus}}
        obj["spec"]["podGroupPolicy"] = case.gang
        spec["schedulerName"] = "volcano" if "volcano" in case.gang else "scheduler-plugins-scheduler"
    own = {key: value for key, value in case.policy.items() if key != "backoffLimit"}
    trainer = {"numNodes": case.nodes, "command": case.command}
    job = trainjob("demo", on=f"matrix-{name}", trainer=trainer, **own)
    job["metadata"]["namespace"] = name
    if not case.is_v1_too or case.gang is not None:
        return [*case.needs, obj, job]
    container = {**spec["containers"][0], "name": "pytorch", "command": case.command}
    template = {"spec": {**spec, "containers": [container, *others]}}
    restart = template["spec"].pop("restartPolicy", "Never")
    replica = {"replicas": 1, "restartPolicy": restart, "template": template}
    replicas = {"Master": replica, "Worker": replica} if case.nodes > 1 else {"Master": replica}
    v1 = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "demo-v1", "namespace": name}}
    return [*case.needs, obj, job, {**v1, "spec": {"runPolicy": dict(case.policy), "pytorchReplicaSpecs": replicas}}]


async def look(home: Path, name: str, cpus: str) -> None:
    """Start the jobs of a case, and compare what is said of them."""
    case = CASES[name]
    objects = manifests(name, case, cpus)
    jobs = ["demo", "pytorchjob/demo-v1"][: sum(each["kind"] in ("TrainJob", "PyTorchJob") for each in objects)]
    given = "\n---\n".join(map(json.dumps, objects))
    options = ["--timeout", "60"] if name in FAILED else ["--no-follow"]
    ran = await trainmaster("run", "-n", name, *options, "-", stdin=given, cwd=home)
    assert ran.code == (1 if name in FAILED else 0), ran.out + ran.err
    for job in jobs:
        await found(home, job, name, case)
    advised = []
    for job in jobs:
        if name in WAITING:
            ran = await attached(home, job, name, given)
        said = await agreed(home, job, name)
        if name in FAILED:
            assert said["restarts"] == case.restarts
            assert is_told_by_run(said, ran.out + ran.err), ran.out + ran.err
        if case.failed_node is not None:
            await compare_with_logs(home, job, name, case, said)
        advised += [line for each in said["causes"] for line in each["whatNext"]]
    for advice in commands_in([*advised, *(ran.out + ran.err).splitlines()]):
        for command in dict.fromkeys(advice.replace(" JOB ", f" {job} ") for job in jobs):
            if not command.startswith("trainmaster attach "):  # which goes on as `run` did
                done = await paste(home, command)
                is_refused = done.code == 1 and "-f waits for" in done.err  # there is no log yet
                assert done.code == 0 or is_refused, f"{command}: {done.code}\n{done.out}{done.err}"


async def found(home: Path, job: str, namespace: str, case: Case) -> None:
    """Wait until explain has the cause in first place."""
    last: JsonObject = {}

    async def first() -> bool:
        last.update(await explanation(home, job, namespace))
        causes = last["causes"]
        return bool(causes) and causes[0]["cause"] == case.cause and says(causes[0], *case.words)

    try:
        await until(first, timeout=60)
    except TimeoutError:
        raise AssertionError(
            f"{job}: {case.cause} with {case.words} is not the first: {json.dumps(last, indent=1)}"
        ) from None


async def attached(home: Path, job: str, namespace: str, given: str) -> Finished:
    """Let `run` look at jobs that go on, until it sees one in the state in which explain does."""
    options = ("--if-exists", "attach", "--timeout", "0.5", "-")
    last: list[Finished] = []

    async def same() -> bool:
        last[:] = [await trainmaster("run", "-n", namespace, *options, stdin=given, cwd=home)]
        return is_told_by_run(await explanation(home, job, namespace), last[0].out + last[0].err)

    await until(same)
    return last[0]


def is_told_by_run(said: JsonObject, ran: str) -> bool:
    """Whether `run` said last of a job what explain says: its state, of one that has failed also restarts and node."""
    title = f"{said['job']['kind']} {said['job']['namespace']}/{said['job']['name']}"
    told = list(re.finditer(rf"^{title}: (?:still )?(\w+)(.*)$(?:\n  (.*))?", ran, re.MULTILINE))[-1]
    if told[1] != said["state"]["name"] or told[1] != "Failed":
        return bool(told[1] == said["state"]["name"])
    restarts, failed = re.search(r", (\d+) restart", told[2]), said["failedContainer"]
    who = ("",) if failed is None else (failed["role"], f"container {failed['container']}")
    failure = str(told[3]).rpartition(" ended first, with exit code 0; ")[2]
    return int(restarts[1] if restarts else 0) == said["restarts"] and failure.startswith(who)


async def compare_with_logs(home: Path, job: str, namespace: str, case: Case, said: JsonObject) -> None:
    """Which node failed, and that its log has what it said."""
    role = f"rank {case.failed_node}" if job == "demo" else ("worker 0" if case.failed_node else "master 0")
    failed = said["failedContainer"]
    assert failed["role"] == role if failed else role in said["causes"][0]["evidence"][0]["text"]
    done = await trainmaster("logs", job, "--all", "-n", namespace, cwd=home)
    assert case.said in done.out, done.out + done.err


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def looks(cluster_home: Path, request: pytest.FixtureRequest) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """What comes of each case; some go on at a time."""
    turns = asyncio.Semaphore(AT_ONCE)
    selected = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    names = [name for name in CASES if name in selected]

    async def in_turn(name: str) -> None:
        async with turns:
            await look(cluster_home, name, cpus)

    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        cpus = (await client.get(NODES, None, NODE_NAME))["status"]["allocatable"]["cpu"]
        for name in names:
            await create_namespace(client, name)
        tasks = {name: asyncio.create_task(in_turn(name)) for name in names}
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for name in names:
            await client.delete(NAMESPACES, None, name)
        await delete_runtimes(client, "matrix-")


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
@pytest.mark.parametrize("name", CASES)
async def test_a_failure_is_told_alike_everywhere(looks: dict[str, asyncio.Task[None]], name: str) -> None:
    if name == "memory" and not sys.platform.startswith("linux"):
        pytest.skip("limits of memory are kept on Linux only")
    await looks[name]
