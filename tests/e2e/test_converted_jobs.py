"""Recorded jobs of Training Operator V1, converted by the command and run as processes on a whole embedded cluster."""

import json
import re
from pathlib import Path

import pytest
import yaml
from support.commands import trainmaster
from support.conversions import expected_environment, new_host, recorded, with_commands
from support.machine import FOUND
from support.training import ended, python

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.yamltext import load_yaml_documents

TELL = """
import json, os, pathlib, time
told = pathlib.Path({directory!r})
mine = told / os.environ["HOSTNAME"]
mine.with_suffix(".part").write_text(json.dumps(dict(os.environ)))
mine.with_suffix(".part").rename(mine.with_suffix(".json"))
while len(list(told.glob("*.json"))) < {pods}:
    time.sleep(0.02)
"""
"""Tells the environment, and waits for all others: the end of one may be the end of the job."""

MEET = """
import socket
rank, address = int(os.environ[{rank!r}]), (os.environ[{host!r}], int(os.environ[{port!r}]))
if rank == 0:
    with socket.create_server(("", address[1]), backlog={pods}) as server:
        came = set()
        while len(came) < {pods} - 1:
            peer, _ = server.accept()
            with peer:
                came.add(peer.recv(100))
    (told / "met").write_text(repr(sorted(came)))
else:
    while not (told / "met").exists():
        try:
            with socket.create_connection(address, timeout=5) as connection:
                connection.sendall(str(rank).encode())
            break
        except OSError:
            time.sleep(0.02)
"""
"""Meets at the address that V1 told."""

TORCH = {"rank": "RANK", "host": "MASTER_ADDR", "port": "MASTER_PORT"}
JAX = {"rank": "PROCESS_ID", "host": "COORDINATOR_ADDRESS", "port": "COORDINATOR_PORT"}
CASES = {
    "001-pytorch-pytest-plain": TORCH,
    "042-tf-chief-ps-worker-evaluator": None,
    "064-xgb-exitcode": TORCH,
    "071-mpi-launcher-workers": None,
    "087-jax-four-workers-port": JAX,
    "095-paddle-workers": None,
}


@pytest.mark.parametrize("name", CASES)
async def test_a_converted_job_sees_what_v1_told_it(client: KubeClient, name: str, tmp_path: Path) -> None:
    case = recorded()[name]
    told = tmp_path / "told"
    told.mkdir()
    places = {"directory": str(told), "pods": len(case["environment"])}
    script = TELL.format(**places)
    if meeting := CASES[name]:
        script += MEET.format(**places, **meeting)
    old = with_commands(case["job"], python(script))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(old))
    done = await trainmaster("convert", "-f", "job.yaml", cwd=tmp_path)
    assert done.code == 0, done.err
    runtime, trainjob = (document for _, document in load_yaml_documents(done.out))
    await client.create(TRAINING_RUNTIMES, runtime, namespace="default")
    await client.create(TRAINJOBS, trainjob, namespace="default")
    job = trainjob["metadata"]["name"]
    condition = await ended(client, job)
    assert condition["type"] == "Complete", condition
    jobset = await client.get(JOBSETS, "default", job)
    hosts = {pod: new_host(jobset, old, pod) for pod in case["environment"]}
    seen = {file.stem: json.loads(file.read_text()) for file in told.glob("*.json")}
    assert set(seen) == {host.partition(".")[0] for host in hosts.values()}
    is_torch = "torch" in runtime["spec"].get("mlPolicy", {})
    for pod, containers in case["environment"].items():
        environment = seen[hosts[pod].partition(".")[0]]
        fields = {"status.podIP": environment.get("POD_IP_DUMMY", "")}
        wanted = expected_environment(next(iter(containers.values())), hosts, fields, is_torch=is_torch)
        assert {key: _without_ports(key, environment.get(key, "")) for key in wanted} == {
            key: _without_ports(key, _seen_by_programs(value, hosts)) for key, value in wanted.items()
        }, pod
    if meeting:
        assert (told / "met").read_text() == repr([str(rank).encode() for rank in range(1, len(hosts))])


def _without_ports(name: str, value: str) -> str:
    """The embedded cluster gives each job ports of its own, since pods share the network of the machine."""
    return "PORT" if name.endswith("_PORT") and value.isdecimal() else re.sub(r":\d{2,5}\b", ":PORT", value)


def _seen_by_programs(value: str, hosts: dict[str, str]) -> str:
    """What the embedded cluster tells in place of names and addresses of pods."""
    if FOUND.mode == "rewriting":
        for host in hosts.values():
            value = value.replace(host, "127.0.0.1")
    return value
