"""What jobs of kubeflow.org/v1 inject, read by scripts as the frameworks read it, on a whole embedded cluster.

So that addresses and ports are right also where nobody has the frameworks: the processes of a job meet by them.
"""

import pytest
from support.running_jobs import all_ended, job, jobs, logs, succeeded
from support.training import python

from trainmaster.controller.kube.rest.client import KubeClient

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
