"""The listeners of Services, with real sockets, and which endpoint a connection goes to."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable

import pytest
from support.commands import TIMEOUT
from support.devcluster.stepper import Stepper
from support.workloads import service

from trainmaster.controller.manager.process import background_task
from trainmaster.devcluster.apiserver.admission.webhook import Address, LocalServices, ServiceUnresolvable
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, SERVICES
from trainmaster.devcluster.kubelet.network.addresses import service_address
from trainmaster.devcluster.listener import free_port
from trainmaster.devcluster.proxy import EndpointResolver, Proxier, ports_of
from trainmaster.runtime.jsontree import JsonObject

READY = {"ready": True, "serving": True, "terminating": False}
STARTING = {"ready": False, "serving": False, "terminating": False}
ENDING = {"ready": False, "serving": True, "terminating": True}


@pytest.fixture
async def resolver(cluster: Stepper) -> AsyncIterator[EndpointResolver]:
    await cluster.api.create(SERVICES, service(), namespace="default")
    made = EndpointResolver(cluster.api, LocalServices())
    yield made
    made.close()


async def publish(cluster: Stepper, *conditions: JsonObject, name: str = "web-a") -> None:
    endpoints = [
        {"addresses": [f"127.20.0.{number}"], "conditions": each, "targetRef": {"kind": "Pod", "name": f"pod-{number}"}}
        for number, each in enumerate(conditions, 1)
    ]
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "", "port": 9443}],
    }
    if cluster.exists(ENDPOINT_SLICES, name):
        live = cluster.api.get(ENDPOINT_SLICES, "default", name)
        await cluster.api.update(ENDPOINT_SLICES, {**live, "endpoints": endpoints})
    else:
        await cluster.api.create(ENDPOINT_SLICES, body, namespace="default")


def chosen(resolver: EndpointResolver, attempts: Iterable[int] = range(200)) -> set[Address]:
    return {resolver.resolve(namespace="default", name="web", port=443) for _ in attempts}


async def test_all_that_are_ready_share_the_connections(cluster: Stepper, resolver: EndpointResolver) -> None:
    await publish(cluster, READY, STARTING, READY, ENDING)
    assert chosen(resolver) == {Address("127.20.0.1", 9443), Address("127.20.0.3", 9443)}


async def test_where_none_is_ready_those_serve_that_end(cluster: Stepper, resolver: EndpointResolver) -> None:
    await publish(cluster, STARTING, ENDING)
    assert chosen(resolver) == {Address("127.20.0.2", 9443)}
    await publish(cluster, STARTING)
    with pytest.raises(ServiceUnresolvable, match='no endpoints available for service "web"'):
        chosen(resolver)


async def test_one_that_follows_late_sees_what_was_there_before(cluster: Stepper) -> None:
    await cluster.api.create(SERVICES, service(), namespace="default")
    await publish(cluster, READY)
    late = EndpointResolver(cluster.api, LocalServices(), lag=0.05)
    await publish(cluster, STARTING, READY)
    assert chosen(late) == {Address("127.20.0.1", 9443)}
    async with asyncio.timeout(TIMEOUT):
        while chosen(late, range(1)) != {Address("127.20.0.2", 9443)}:
            await asyncio.sleep(0.01)
    late.close()


async def test_a_pod_may_listen_elsewhere_than_it_says(cluster: Stepper) -> None:
    await cluster.api.create(SERVICES, service(), namespace="default")
    await publish(cluster, READY)

    def locate(namespace: str, name: str, address: Address) -> Address:
        assert (namespace, name) == ("default", "pod-1")
        return Address("127.0.0.1", address.port + 1)

    moved = EndpointResolver(cluster.api, LocalServices(), locate=locate)
    assert chosen(moved) == {Address("127.0.0.1", 9444)}
    moved.close()


async def test_what_is_registered_by_hand_comes_first(cluster: Stepper) -> None:
    local = LocalServices()
    forget = local.register(namespace="default", name="web", address="127.0.0.1", local_port=1)
    await cluster.api.create(SERVICES, service(), namespace="default")
    await publish(cluster, READY)
    resolver = EndpointResolver(cluster.api, local)
    assert chosen(resolver) == {Address("127.0.0.1", 1)}
    forget()
    assert chosen(resolver) == {Address("127.20.0.1", 9443)}
    resolver.close()


CLUSTER = "tests"
ADDRESS = service_address("default", "web", cluster=CLUSTER)


class Backends:
    """Resolves every Service to one server, which answers in capitals."""

    def __init__(self) -> None:
        self.address: Address | None = None

    def resolve(self, *, namespace: str, name: str, port: int) -> Address:
        if self.address is None:
            raise ServiceUnresolvable("no endpoints")
        return self.address


@pytest.fixture
async def backends() -> AsyncIterator[Backends]:
    made = Backends()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    made.address = Address(*server.sockets[0].getsockname())
    yield made
    server.close()


async def ask(port: int, text: bytes) -> bytes:
    """Send a text with its end, and return the answer."""
    reader, writer = await asyncio.open_connection(ADDRESS, port)
    writer.write(text)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


async def listens(port: int, *, wanted: bool = True) -> None:
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                _, writer = await asyncio.open_connection(ADDRESS, port)
            except OSError:
                found = False
            else:
                writer.close()
                found = True
            if found == wanted:
                return
            await asyncio.sleep(0.01)


async def test_a_connection_is_passed_on_to_its_end(cluster: Stepper, backends: Backends) -> None:
    port, other = free_port(), free_port()
    await cluster.api.create(SERVICES, service(ports=[{"port": port}]), namespace="default")
    async with background_task(Proxier(cluster.api, backends, cluster=CLUSTER).run()):
        await listens(port)
        text = b"x" * 300_000
        assert await ask(port, text) == text.upper()
        live = cluster.api.get(SERVICES, "default", "web")
        ports = [{**live["spec"]["ports"][0], "port": other, "targetPort": other}]
        await cluster.api.update(SERVICES, {**live, "spec": {**live["spec"], "ports": ports}})
        await listens(other)
        await listens(port, wanted=False)
        await cluster.api.delete(SERVICES, "default", "web")
        await listens(other, wanted=False)


async def test_a_service_without_endpoints_resets_the_connection(cluster: Stepper, backends: Backends) -> None:
    backends.address = None
    port = free_port()
    await cluster.api.create(SERVICES, service(ports=[{"port": port}]), namespace="default")
    async with background_task(Proxier(cluster.api, backends, cluster=CLUSTER).run()):
        await listens(port)
        with pytest.raises(ConnectionResetError):
            await ask(port, b"hello")


async def test_a_port_that_is_taken_is_told_and_the_others_are_served(cluster: Stepper, backends: Backends) -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port, held = free_port(), taken.getsockname()[1]
        ports = [{"name": "a", "port": held}, {"name": "b", "port": port}]
        await cluster.api.create(SERVICES, service(ports=ports), namespace="default")
        async with background_task(Proxier(cluster.api, backends, cluster=CLUSTER).run()):
            await listens(port)
            assert await ask(port, b"hello") == b"HELLO"


def test_only_tcp_ports_of_services_with_an_address_are_served() -> None:
    ports = [{"port": 53, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}, {"port": 81}]
    assert ports_of({"spec": {"clusterIP": "10.0.0.1", "ports": ports}}) == {80, 81}
    assert ports_of({"spec": {"clusterIP": "None", "ports": ports}}) == set()
    assert ports_of({"spec": {"type": "ExternalName", "ports": ports}}) == set()
    assert ports_of(None) == set()
