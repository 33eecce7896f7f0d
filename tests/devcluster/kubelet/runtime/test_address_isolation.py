"""Addresses of pods of their own, on real processes."""

import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from support.commands import TIMEOUT, eventually
from support.machine import FOUND, needs_namespaces
from support.node import Node, first_line

from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.kubelet.runtime import address_isolation
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [
    pytest.mark.nightly,
    needs_namespaces,
    pytest.mark.skipif(not FOUND.own_addresses, reason="the kernel does not let a filter ask another process"),
]

_LISTEN = """
import socket, sys, threading
made = []
def listen():
    made.append(socket.create_server(("0.0.0.0", PORT)))
thread = threading.Thread(target=listen)
thread.start()
thread.join()
print(made[0].getsockname()[0] if made else "refused", flush=True)
threading.Event().wait()
"""


def _has_a_line(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


async def replica(
    node: Node, name: str, script: str, *, first: JsonObject | None = None, more: Sequence[JsonObject] = ()
) -> None:
    container = first or {"name": "c", "image": "any", "command": [sys.executable, "-c", script]}
    await node.create(container, *more, name=name, owner="ReplicaSet/web")


@pytest.mark.parametrize("node", [pytest.param(FOUND, id="namespaces")], indirect=True)
async def test_two_replicas_listen_on_one_port(node: Node) -> None:
    port = free_port()
    async with node.running():
        addresses = []
        for name in ("a", "b"):
            await replica(node, name, _LISTEN.replace("PORT", str(port)))
            pod = await node.phase("Running", name=name)
            path = node.directory / "pods" / pod["metadata"]["uid"] / "logs/c/0.log"
            await eventually(partial(_has_a_line, path))
            assert path.read_text().split()[-1] == pod["status"]["podIP"]
            addresses.append(pod["status"]["podIP"])
        assert len(set(addresses)) == 2
        for address in addresses:
            socket.create_connection((address, port), timeout=TIMEOUT).close()


_KINDS = """
import socket
try:
    socket.socket(socket.AF_INET6)
    print("IPv6", end=" ")
except OSError as error:
    print(error.strerror, end=", ")
with socket.socket() as chosen:
    chosen.bind(("127.0.0.1", 0))
    print(chosen.getsockname()[0], end=" ")
with socket.socket() as any_port:
    any_port.bind(("0.0.0.0", 0))
    print(any_port.getsockname()[0], end=" ")
with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
    datagrams.bind(("0.0.0.0", 0))
    print(datagrams.getsockname()[0], end=" ")
with socket.socket(socket.AF_UNIX) as local:
    local.bind("\\0" + "trainmaster-test-" + str(__import__("os").getpid()))
print("done", flush=True)
"""


@pytest.mark.parametrize("node", [pytest.param(FOUND, id="namespaces")], indirect=True)
async def test_all_other_sockets_are_bound_as_the_process_wants(node: Node) -> None:
    async with node.running() as kubelet:
        await replica(node, "p", _KINDS)
        await node.phase("Succeeded")
        expected = "Address family not supported by protocol, 127.0.0.1 0.0.0.0 0.0.0.0 done\n"
        assert await node.log(kubelet) == expected


_TAKEN = """
import socket
first = socket.create_server(("0.0.0.0", PORT))
try:
    socket.create_server(("0.0.0.0", PORT))
except OSError as error:
    print(error.errno, flush=True)
"""


@pytest.mark.parametrize("node", [pytest.param(FOUND, id="namespaces")], indirect=True)
async def test_an_address_that_is_taken_is_told_as_ever(node: Node) -> None:
    async with node.running() as kubelet:
        await replica(node, "p", _TAKEN.replace("PORT", str(free_port())))
        await node.phase("Succeeded")
        assert await node.log(kubelet) == "98\n"


@pytest.mark.parametrize("node", [pytest.param(FOUND, id="namespaces")], indirect=True)
async def test_processes_that_its_processes_start_have_it_too_and_end_with_it(node: Node) -> None:
    port = free_port()
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_LISTEN.replace('PORT', str(port))!r}])"
    async with node.running() as kubelet:
        await replica(node, "p", script)
        pod = await node.phase("Running")
        assert (await first_line(node, kubelet)) == pod["status"]["podIP"]
        await node.api.delete(PODS, "default", "p")
        await node.gone()


@pytest.mark.parametrize("node", [pytest.param(FOUND, id="namespaces")], indirect=True)
async def test_a_pod_that_is_no_replica_listens_where_it_wants(node: Node) -> None:
    port = free_port()
    async with node.running() as kubelet:
        command = [sys.executable, "-c", _LISTEN.replace("PORT", str(port))]
        await node.create({"name": "c", "image": "any", "command": command})
        await node.phase("Running")
        assert await first_line(node, kubelet) == "0.0.0.0"


_LOCALHOST = """
import asyncio, socket, sys, threading, time
if sys.argv[1] == "listen":
    server = socket.create_server(("0.0.0.0", PORT))
    def serve():
        while True:
            connection, (address, _) = server.accept()
            connection.sendall(connection.recv(10))
            connection.close()
    threading.Thread(target=serve, daemon=True).start()
def waiting():
    while True:
        try:
            with socket.create_connection(("localhost", PORT), timeout=None) as client:
                client.sendall(b"1")
                return client.recv(10).decode()
        except ConnectionRefusedError:
            time.sleep(0.02)
async def at_once():
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"2")
    answer = (await reader.read()).decode()
    writer.close()
    return answer
print(waiting(), asyncio.run(at_once()), flush=True)
try:
    socket.create_connection(("127.0.0.1", CLOSED))
except OSError as error:
    print(error.strerror, flush=True)
with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
    datagrams.connect(("127.0.0.1", PORT))
    print(datagrams.getpeername()[0], flush=True)
socket.create_connection(("127.0.0.1", OUTSIDE)).close()
if sys.argv[1] == "listen":
    threading.Event().wait()
"""


@pytest.mark.parametrize("node", [pytest.param(FOUND, id="namespaces")], indirect=True)
async def test_what_listens_is_at_localhost_for_all_of_its_pod(node: Node) -> None:
    """For its other containers and its probes, too; what others listen on there stays reachable."""
    port, closed = free_port(), free_port()
    with socket.create_server(("127.0.0.1", 0)) as outside:
        script = _LOCALHOST.replace("PORT", str(port)).replace("CLOSED", str(closed))
        script = script.replace("OUTSIDE", str(outside.getsockname()[1]))
        probe = [sys.executable, "-c", f"import socket; socket.create_connection(('localhost', {port})).close()"]
        first = {
            "name": "c",
            "image": "any",
            "command": [sys.executable, "-c", script, "listen"],
            "readinessProbe": {"exec": {"command": probe}, "periodSeconds": 1},
        }
        second = {"name": "second", "image": "any", "command": [sys.executable, "-c", script, "connect"]}
        async with node.running() as kubelet:
            await replica(node, "p", "", more=[second], first=first)
            ended = await node.reached(
                lambda pod: any("terminated" in each["state"] for each in pod["status"].get("containerStatuses", ()))
            )
            states = {each["name"]: each for each in ended["status"]["containerStatuses"]}
            assert states["second"]["state"]["terminated"]["exitCode"] == 0
            expected = "1 2\nConnection refused\n127.0.0.1\n"
            assert await node.log(kubelet, container="second") == expected
            path = node.directory / "pods" / ended["metadata"]["uid"] / "logs/c/0.log"
            await eventually(lambda: len(path.read_text().splitlines()) == 3)
            assert await node.log(kubelet) == expected
            await node.reached(lambda pod: pod["status"]["containerStatuses"][0]["ready"])


def test_the_trial_leaves_no_process_behind() -> None:
    before = children()
    assert address_isolation.works()
    assert children() <= before


def children() -> set[int]:
    """The children of this process; other tests may have left it the one from which they fork."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
