"""What jobs of kubeflow.org/v1 inject, read by scripts as the frameworks read it, on a whole embedded cluster.

So that addresses and ports are right also where nobody has the frameworks: the processes of a job meet by them.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from support.commands import client_of, trainmaster
from support.machine import FOUND
from support.running_jobs import all_ended, job, jobs, logs, succeeded
from support.training import found, python, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS, Resource

ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", namespaced=True)


NAMESPACES = pytest.mark.skipif(
    FOUND.mode != "namespaces", reason=f"scripts have paths and names in them: {FOUND.reason}"
)


@pytest.fixture
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        yield client


# What paddle.distributed.launch does with its variables: who has the address of PADDLE_MASTER serves there, the others
# come to it, until there are PADDLE_NNODES of them.
PADDLE = """
import os, socket, time
host, port = os.environ["PADDLE_MASTER"].split(":")
nodes, name = int(os.environ["PADDLE_NNODES"]), os.environ["PADDLE_JOB_ID"]
def come():
    deadline = time.monotonic() + 100
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(name.encode())
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
if host == os.environ.get("POD_IP_DUMMY"):
    with socket.create_server((host, int(port)), backlog=nodes) as server:
        came = []
        while len(came) < nodes - 1:
            peer, _ = server.accept()
            with peer:
                came.append(peer.recv(100).decode())
    print("met", *came, flush=True)
else:
    come()
print(*(f"{key}={os.environ.get(key)}" for key in ("PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM")), flush=True)
"""


@pytest.mark.parametrize("master", [0, 1], ids=["collective", "parameter server"])
async def test_a_paddlejob_tells_everybody_where_to_meet(client: KubeClient, master: int) -> None:
    command, name = python(PADDLE), f"paddle-{master}"
    replicas = {"Worker": (3, command), **({"Master": (1, command)} if master else {})}
    await client.create(jobs("PaddleJob"), job("PaddleJob", name, replicas))
    await succeeded(client, "PaddleJob", name)
    await all_ended(client, name)
    printed = await logs(client, name)
    meeting = "master-0" if master else "worker-0"
    assert printed.pop(meeting).splitlines() == [
        " ".join(["met", *([name] * (2 + master))]),
        f"PADDLE_SERVER_NUM={1 if master else None} PADDLE_TRAINER_NUM=None",
    ]
    assert set(printed.values()) == {f"PADDLE_SERVER_NUM=None PADDLE_TRAINER_NUM={1 if master else None}\n"}
    assert len(printed) == 2 + master


# What mpirun does with its variables: it reads the hosts and their slots, and starts ranks by the agent, a program that
# gets the host and the command. The embedded cluster serves no exec, and says so: the way there is right.
MPIRUN = """
import os, subprocess, time
hostfile, agent = os.environ["OMPI_MCA_orte_default_hostfile"], os.environ["OMPI_MCA_plm_rsh_agent"]
assert os.environ["I_MPI_HYDRA_BOOTSTRAP_EXEC"] == agent, os.environ
hosts = dict(line.split() for line in open(hostfile))
print(hosts, flush=True)
for host in hosts:
    answer = subprocess.run([agent, host, "orted", "-mca", "ess"], capture_output=True, text=True)
    print(*answer.stderr.splitlines()[-2:], sep=chr(10), flush=True)
pod = ["/opt/kube/kubectl", "get", "pod", os.uname().nodename, "-o", "jsonpath={.metadata.annotations.may-end}"]
while subprocess.run(pod, check=True, capture_output=True, text=True).stdout != "yes":
    time.sleep(0.1)
"""


@NAMESPACES
@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
async def test_a_launcher_reaches_workers_by_kubectl(client: KubeClient) -> None:
    """As far as the API server: `exec` is not there. Workers go when the launcher is done, the rest with the job."""
    asked = job("MPIJob", "ranks", {"Launcher": (1, python(MPIRUN)), "Worker": (2, None)}, slotsPerWorker=2)
    asked["spec"]["cleanPodPolicy"] = "Running"
    await client.create(jobs("MPIJob"), asked)

    async def discovered() -> bool:
        listed = (await client.list(CONFIGMAPS, "default", field_selector="metadata.name=ranks-config"))["items"]
        lines = [obj["data"]["discover_hosts.sh"].splitlines() for obj in listed]
        return lines == [["#!/bin/sh", "echo ranks-worker-0:2", "echo ranks-worker-1:2"]]

    async def may_reach_both() -> bool:
        role = await found(client, ROLES, "ranks-launcher")
        rules = role["rules"] if role is not None else []
        return [each["resourceNames"] for each in rules[1:]] == [["ranks-worker-0", "ranks-worker-1"]]

    await until(may_reach_both)
    # Mounted files change later, if at all, so that the launcher does not wait for them.
    await until(discovered)
    may_end = {"metadata": {"annotations": {"may-end": "yes"}}}
    await client.patch(PODS, "default", "ranks-launcher", may_end, field_manager="test")
    await succeeded(client, "MPIJob", "ranks")
    refused = "the embedded cluster does not implement the exec subresource of pods"
    printed = (await logs(client, "ranks"))["launcher"].splitlines()
    assert printed.pop(0) == "{'ranks-worker-0': 'slots=2', 'ranks-worker-1': 'slots=2'}"
    for host in ("ranks-worker-0", "ranks-worker-1"):
        assert printed.pop(0) == f"+ /opt/kube/kubectl exec {host} -- /bin/sh -c orted -mca ess"
        assert refused in printed.pop(0)

    async def only_the_launcher_is_left() -> bool:
        pods = (await client.list(PODS, "default", label_selector="training.kubeflow.org/job-name=ranks"))["items"]
        rules = (await client.get(ROLES, "default", "ranks-launcher"))["rules"]
        return [pod["metadata"]["name"] for pod in pods] == ["ranks-launcher"] and len(rules) == 1

    # Nobody may reach into pods of these names any more, whose they may be.
    await until(only_the_launcher_is_left)
    await client.delete(jobs("MPIJob"), "default", "ranks")

    async def gone() -> bool:
        found = [*(await client.list(ROLES, "default"))["items"], *(await client.list(CONFIGMAPS, "default"))["items"]]
        return not any(obj["metadata"]["name"].startswith("ranks-") for obj in found)

    await until(gone)


# What sshd is in an image: lets in who has the key of the job, and runs what it is told.
SSHD = """
import asyncio, asyncssh

async def run(process):
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_shell(process.command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    output, _ = await started.communicate()
    process.stdout.write(output)
    process.exit(started.returncode)

async def main():
    await asyncssh.listen(
        "", 2222,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        authorized_client_keys="/opt/keys/authorized_keys",
        process_factory=run,
        encoding=None,
    )
    await asyncio.Event().wait()

asyncio.run(main())
"""

# ssh as root wants a key that nobody else may read. Workers may not listen yet.
SSH = """
set -eu
(umask 077; cat /opt/keys/id_rsa > "$HOME/key")
while read -r host slots; do
    until ssh -n -i "$HOME/key" -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$host" \\
        "echo $host $slots on \\$(uname -n)"; do sleep 0.1; done
done < "$OMPI_MCA_orte_default_hostfile"
"""


@NAMESPACES
@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh on PATH")
@pytest.mark.skipif(find_spec("asyncssh") is None, reason="asyncssh is not installed; `make test-nightly` installs it")
async def test_a_launcher_reaches_workers_over_ssh(tmp_path: Path) -> None:
    """By the hostfile, the names of the Services and the keys of the job.

    mpirun itself would have the workers come back to an address of this machine, where no pod listens.
    """
    config = tmp_path / "config.yaml"
    options = {"mpijob": {"transport": "ssh", "sshAuthMountPath": "/opt/keys"}}
    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    config.write_text(yaml.safe_dump({**head, "trainingOperator": {"options": options}}))
    up = await trainmaster("cluster", "up", "--detach", "--config", str(config), cwd=tmp_path)
    assert up.code == 0, up.err
    try:
        async with client_of(tmp_path / ".trainmaster" / "kubeconfig") as client:
            replicas = {"Launcher": (1, ["sh", "-c", SSH]), "Worker": (2, python(SSHD))}
            await client.create(jobs("MPIJob"), job("MPIJob", "ssh", replicas, slotsPerWorker=2))
            await succeeded(client, "MPIJob", "ssh")
            printed = (await logs(client, "ssh"))["launcher"].splitlines()
            told = [line for line in printed if " on " in line]
            assert told == [f"ssh-worker-{index} slots=2 on ssh-worker-{index}" for index in range(2)], printed
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)
