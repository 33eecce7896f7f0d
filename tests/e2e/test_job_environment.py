"""What jobs of kubeflow.org/v1 inject, read by scripts as the frameworks read it, on a whole embedded cluster.

So that addresses and ports are right also where nobody has the frameworks: the processes of a job meet by them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.commands import client_of
from support.running_jobs import all_ended, job, jobs, logs, succeeded
from support.training import python

from trainmaster.controller.kube.rest.client import KubeClient

pytestmark = pytest.mark.slow(seconds=20)


@pytest.fixture
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        yield client


# What TensorFlow's TFConfigClusterResolver and its server make of TF_CONFIG: who is there, who this is, and where it
# listens. All but the evaluator, which TensorFlow keeps outside of the cluster, meet at the chief.
TENSORFLOW = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
assert config["environment"] == "cloud", config
assert all(isinstance(each, str) and each.count(":") == 1 for hosts in cluster.values() for each in hosts), config
own = f"{task['type']}-{task['index']}"
host, port = cluster[task["type"]][task["index"]].split(":")
others = sum(len(hosts) for role, hosts in cluster.items() if role not in ("chief", "evaluator"))
if task["type"] == "chief":
    with socket.create_server(("", int(port)), backlog=others) as server:
        came = set()
        while len(came) < others:
            peer, _ = server.accept()
            with peer:
                came.add(peer.recv(100).decode())
    print("met", *sorted(came), flush=True)
elif task["type"] != "evaluator":
    host, port = cluster["chief"][0].split(":")
    deadline = time.monotonic() + 100
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(own.encode())
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
print(own, json.dumps({role: len(hosts) for role, hosts in cluster.items()}), flush=True)
"""


async def test_a_tfjob_tells_each_task_the_cluster(client: KubeClient) -> None:
    command = python(TENSORFLOW)
    numbers = {"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}
    replicas = {role: (number, command) for role, number in numbers.items()}
    await client.create(jobs("TFJob"), job("TFJob", "tasks", replicas))
    await succeeded(client, "TFJob", "tasks")
    await all_ended(client, "tasks")
    sizes = '{"chief": 1, "evaluator": 1, "ps": 2, "worker": 2}'
    tasks = ("chief-0", "evaluator-0", "ps-0", "ps-1", "worker-0", "worker-1")
    wanted = {task: f"{task} {sizes}\n" for task in tasks}
    wanted["chief-0"] = "met ps-0 ps-1 worker-0 worker-1\n" + wanted["chief-0"]
    assert await logs(client, "tasks") == wanted


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
