"""mpirun starts ranks in the pods of a job, over SSH or by `kubectl exec`, and they sum up their numbers.

Programs and packages of MPI are in an environment of their own for each implementation, as they would be in an image.
"""

import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from support.commands import client_of
from support.debian import program
from support.embedded import embedded
from support.machine import FOUND
from support.running_jobs import job, jobs, logs, succeeded
from support.training import ended, log_of, pods, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS, Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/mpi/job.yaml"
ENVIRONMENTS = ROOT / ".cache/mpi"
RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes", namespaced=True)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", namespaced=True)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(FOUND.mode != "namespaces", reason=f"ssh has paths in it: {FOUND.reason}"),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh on PATH"),
]

AS_ROOT = [{"name": f"OMPI_ALLOW_RUN_AS_ROOT{end}", "value": "1"} for end in ("", "_CONFIRM")]

SUM = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size} on {os.uname().nodename}: {world.allreduce(world.rank)}", flush=True)
"""


def programs(implementation: str) -> Path:
    """Where mpirun of an implementation is, with a Python that has mpi4py."""
    place = ENVIRONMENTS / implementation / "bin"
    if not (place / "mpirun").exists():
        pytest.skip(f"there is no {place}/mpirun; `make test-nightly` installs it")
    return place


def example(name: str, implementation: str) -> tuple[JsonObject, JsonObject, JsonObject]:
    """Return ConfigMap, runtime and TrainJob of the example, as they run on this machine, under another name."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("/opt/mpi/bin", str(programs(implementation)))
    config, runtime, trainjob = objects = list(yaml.safe_load_all(text.replace("/usr/sbin/sshd", program("sshd"))))
    for obj in objects:
        obj["metadata"] = {"name": name, "namespace": "default"}
    trainjob["spec"]["runtimeRef"]["name"] = name
    # Of root sshd wants a user and a directory, which are there where Debian has installed it.
    config["data"]["passwd"] = "root:*:0:0::/root:/bin/sh\nsshd:*:65534:65534::/run/sshd:/bin/false\n"
    for replicated in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        spec = replicated["template"]["spec"]["template"]["spec"]
        spec["volumes"] = [{"name": "ssh", "configMap": {"name": name}}]
        (container,) = spec["containers"]
        if os.geteuid() == 0:
            spec["volumes"].append({"name": "run", "emptyDir": {}})
            of_root = {"name": "ssh", "mountPath": "/etc/passwd", "subPath": "passwd"}
            mounts = [*container["volumeMounts"], of_root, {"name": "run", "mountPath": "/run/sshd"}]
            container |= {"volumeMounts": mounts, "env": [*container.get("env", []), *AS_ROOT]}
    return config, runtime, trainjob


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        yield client


async def train(client: KubeClient, *objects: JsonObject) -> None:
    for obj in objects:
        await client.create({"ConfigMap": CONFIGMAPS, "TrainJob": TRAINJOBS}.get(obj["kind"], RUNTIMES), obj)


def nodes_of_ranks(printed: str) -> list[str]:
    """Return the nodes on which the four ranks have summed up their numbers; each rank has said so once."""
    told = re.findall(r"rank (\d) of 4 on (\S+): (?:everybody makes )?6(?!\d)", printed)
    assert sorted(rank for rank, _ in told) == ["0", "1", "2", "3"], printed
    return sorted(node for _, node in told)


@pytest.mark.parametrize("as_node", [False, True], ids=["apart", "node"])
@pytest.mark.parametrize(("implementation", "called"), [("openmpi", "OpenMPI"), ("mpich", "MPICH")])
async def test_ranks_of_a_trainjob_meet(client: KubeClient, implementation: str, called: str, as_node: bool) -> None:
    """What `trainer.env` sets reaches them: MPICH passes all variables on, Open MPI those that `-x` names."""
    name = f"{implementation}-{'node' if as_node else 'apart'}"
    config, runtime, trainjob = example(name, implementation)
    runtime["spec"]["mlPolicy"]["mpi"] |= {"mpiImplementation": called, "runLauncherAsNode": as_node}
    trainer = trainjob["spec"]["trainer"]
    if implementation == "mpich":
        trainer["command"] = [each for each in trainer["command"] if each not in {"-x", "WHO"}]
        trainer["env"].append({"name": "HYDRA_IFACE", "value": "lo"})
    await train(client, config, runtime, trainjob)
    condition = await ended(client, name)
    (launcher,) = (pod for pod in await pods(client, name) if "-launcher-" in pod["metadata"]["name"])
    printed = await log_of(client, launcher["metadata"]["name"])
    assert condition["type"] == "Complete", (condition, printed)
    nodes = [f"{name}-node-0-0", f"{name}-{'launcher-0-0' if as_node else 'node-0-1'}"]
    assert nodes_of_ranks(printed) == sorted([*nodes, *nodes])
    assert printed.count("everybody makes") == 4


LOSES_A_RANK = """
import os, time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 3:
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("implementation", "called", "words"),
    [
        ("openmpi", "OpenMPI", r"signal 9 ended rank 3 on node openmpi-killed-node-0-1"),
        ("mpich", "MPICH", r"process \d+ on node mpich-killed-node-0-1.mpich-killed ended with exit code or signal 9"),
    ],
)
async def test_a_killed_rank_ends_the_job(client: KubeClient, implementation: str, called: str, words: str) -> None:
    name = f"{implementation}-killed"
    config, runtime, trainjob = example(name, implementation)
    runtime["spec"]["mlPolicy"]["mpi"]["mpiImplementation"] = called
    command = [str(programs(implementation) / each) for each in ("mpirun", "python")]
    env = [{"name": "HYDRA_IFACE", "value": "lo"}]
    trainjob["spec"]["trainer"] = {"command": [*command, "-c"], "args": [LOSES_A_RANK], "env": env}
    await train(client, config, runtime, trainjob)
    condition = await ended(client, name)
    assert condition["type"] == "Failed"
    assert re.search(f"mpirun says: {words}", condition["message"]), condition


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
async def test_a_launcher_starts_ranks_by_kubectl(client: KubeClient) -> None:
    """It may reach its own workers alone, and nobody any more when it is done."""
    replicas = {"Launcher": (1, sums("openmpi")), "Worker": (2, None)}
    asked = job("MPIJob", "by-kubectl", replicas, slotsPerWorker=2)
    asked["spec"]["cleanPodPolicy"] = "Running"
    (container,) = asked["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    container["env"] = AS_ROOT
    await client.create(jobs("MPIJob"), asked)
    await succeeded(client, "MPIJob", "by-kubectl")
    printed = await log_of(client, "by-kubectl-launcher")
    assert nodes_of_ranks(printed) == [f"by-kubectl-worker-{rank // 2}" for rank in range(4)]

    async def only_the_launcher_is_left() -> bool:
        selector = "training.kubeflow.org/job-name=by-kubectl"
        left = (await client.list(PODS, "default", label_selector=selector))["items"]
        rules = (await client.get(ROLES, "default", "by-kubectl-launcher"))["rules"]
        return [pod["metadata"]["name"] for pod in left] == ["by-kubectl-launcher"] and len(rules) == 1

    # Nobody may reach into pods of these names any more, whose they may be.
    await until(only_the_launcher_is_left)
    await client.delete(jobs("MPIJob"), "default", "by-kubectl")

    async def gone() -> bool:
        left = [*(await client.list(ROLES, "default"))["items"], *(await client.list(CONFIGMAPS, "default"))["items"]]
        return not any(obj["metadata"]["name"].startswith("by-kubectl-") for obj in left)

    await until(gone)


def sums(implementation: str) -> list[str]:
    return [str(programs(implementation) / "mpirun"), str(programs(implementation) / "python"), "-c", SUM]


@pytest.mark.parametrize("implementation", ["openmpi", "mpich"])
async def test_a_launcher_starts_ranks_by_ssh(over_ssh: KubeClient, implementation: str) -> None:
    """By the names of Services and the keys of the job."""
    name = f"{implementation}-by-ssh"
    config, runtime, _ = example(name, implementation)
    worker, launcher = (
        each["template"]["spec"]["template"]["spec"] for each in runtime["spec"]["template"]["spec"]["replicatedJobs"]
    )
    launcher["containers"][0]["command"] = sums(implementation)
    launcher["containers"][0].setdefault("env", []).append({"name": "HYDRA_IFACE", "value": "lo"})
    asked = job("MPIJob", name, {"Launcher": (1, None), "Worker": (2, None)}, slotsPerWorker=2)
    for replica, spec in (("Launcher", launcher), ("Worker", worker)):
        asked["spec"]["mpiReplicaSpecs"][replica]["template"]["spec"] = spec
    await over_ssh.create(CONFIGMAPS, config)
    await over_ssh.create(jobs("MPIJob"), asked)
    await succeeded(over_ssh, "MPIJob", name)
    printed = (await logs(over_ssh, name))["launcher"]
    assert nodes_of_ranks(printed) == [f"{name}-worker-{rank // 2}" for rank in range(4)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def over_ssh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubeClient]:
    """A cluster whose launchers of MPIJobs start ranks over SSH."""
    home = tmp_path_factory.mktemp("ssh")
    options = {"mpijob": {"transport": "ssh", "sshAuthMountPath": "/etc/mpi-keys"}}
    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    (home / "config.yaml").write_text(yaml.safe_dump({**head, "trainingOperator": {"options": options}}))
    with embedded(home, "--config", "config.yaml"):
        async with client_of(home / ".trainmaster" / "kubeconfig") as client:
            yield client
