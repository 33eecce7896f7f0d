"""Which endpoint of a Service a connection goes to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from support.commands import TIMEOUT
from support.workloads import service

from trainmaster.devcluster.apiserver.admission.webhook import Address, LocalServices, ServiceUnresolvable
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, SERVICES
from trainmaster.devcluster.proxy.resolver import EndpointResolver
from trainmaster.devcluster.testing.stepper import Stepper
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
