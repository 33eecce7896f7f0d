"""The way to Services, as kube-proxy makes it: the endpoint of each connection, and listeners for pods.

Lets pods reach Services by name: listens at an address for each Service and passes connections on to its endpoints.

The address follows from the name of the Service, and the hosts files of pods in namespaces have it. It is one of the
loopback interface; `spec.clusterIP`, which lies in a network that the host does not have, is not reached. Ports below
1024 take rights that the cluster mostly has not: those are left out, and that is logged once.

Finds the endpoint behind a Service for one connection: any of those that are ready, by its EndpointSlices.

- A pod that is not ready gets no new connection. Where none is ready, those that end and still serve get them, as with
  kube-proxy.
- Services that are registered by hand (`LocalServices`) come first: the embedded manager has no pod.
- With a `lag` it acts on changes of endpoints so many seconds later, as what stands between a pod and its clients in a
  real cluster does.
- Who calls webhooks asks anew for each request, so that the endpoints share them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

import structlog

from trainmaster.devcluster.apiserver.admission.webhook import (
    Address,
    LocalServices,
    ServiceResolver,
    ServiceUnresolvable,
)
from trainmaster.devcluster.apiserver.errors import quote
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, SERVICES
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController, key_of
from trainmaster.devcluster.controllers.endpointslice import SERVICE_NAME
from trainmaster.devcluster.controllers.indexer import Indexer, find
from trainmaster.devcluster.kubelet.network.addresses import service_address
from trainmaster.runtime.jsontree import JsonObject

_CHUNK = 64 * 1024

_Listeners: TypeAlias = dict[int, asyncio.Server | None]

_log = structlog.get_logger(__name__)

Locate = Callable[[str, str, Address], Address]
"""Tells where a pod, given by namespace and name, really listens that says it listens at an address."""


class Proxier(SingleLoopController):
    """Keeps the listeners of all Services that have an address; keys are Services.

    `cluster` is that of the kubelet, which writes the addresses into hosts files.
    """

    def __init__(self, api: Api, services: ServiceResolver, *, cluster: str) -> None:
        self._api = api
        self._cluster = cluster
        self._services = services
        self._listeners: dict[ObjectKey, _Listeners] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = ControlLoop("proxy", self._reconcile, api=api)
        self._loop.watch_keys(SERVICES)

    async def run(self) -> None:
        """Pass connections on until cancelled; then end them."""
        try:
            await super().run()
        finally:
            for listeners in self._listeners.values():
                _close(listeners, set())
            self._listeners.clear()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _reconcile(self, key: ObjectKey) -> None:
        wanted = ports_of(find(self._api, key))
        listeners = self._listeners.setdefault(key, {})
        _close(listeners, wanted)
        for port in wanted - listeners.keys():
            listeners[port] = await self._listen(key, port)
        if not listeners:
            del self._listeners[key]

    async def _listen(self, key: ObjectKey, port: int) -> asyncio.Server | None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = asyncio.current_task()
            if connection is not None:
                self._connections.add(connection)
                connection.add_done_callback(self._connections.discard)
            await self._pass_on(key, port, reader, writer)

        address = service_address(key.namespace, key.name, cluster=self._cluster)
        try:
            return await asyncio.start_server(accept, address, port)
        except OSError as error:
            problem = error.strerror or str(error)
            _log.warning(
                "pods do not reach a service", service=f"{key.namespace}/{key.name}", port=port, problem=problem
            )
            return None

    async def _pass_on(
        self, key: ObjectKey, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            address: Address = self._services.resolve(namespace=key.namespace, name=key.name, port=port)
            theirs, to_them = await asyncio.open_connection(address.host, address.port)
        except (OSError, ServiceUnresolvable):
            writer.transport.abort()  # the client finds its connection reset, as behind a real service
            return
        try:
            await asyncio.gather(_pump(reader, to_them), _pump(theirs, writer))
        finally:
            for each in (writer, to_them):
                each.close()


def ports_of(service: JsonObject | None) -> set[int]:
    """Return the TCP ports of a service that has an address."""
    if service is None or service["spec"].get("clusterIP") in {None, "None", ""}:
        return set()
    return {each["port"] for each in service["spec"].get("ports") or () if each.get("protocol", "TCP") == "TCP"}


def _close(listeners: _Listeners, kept: set[int]) -> None:
    for port in listeners.keys() - kept:
        server = listeners.pop(port)
        if server is not None:
            server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, which is passed on."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def _as_it_says(_namespace: str, _name: str, address: Address) -> Address:
    return address


def _service_of(piece: JsonObject) -> tuple[str, str] | None:
    name = (piece["metadata"].get("labels") or {}).get(SERVICE_NAME)
    return (piece["metadata"]["namespace"], name) if name else None


class EndpointResolver:
    """Finds where pods and Services listen, for webhooks, proxies and pods; closed by its owner."""

    def __init__(self, api: Api, local: LocalServices, *, locate: Locate | None = None, lag: float = 0.0) -> None:
        self._api = api
        self._local = local
        self.locate = locate or _as_it_says
        """Tells where a pod really listens."""

        self._slices = Indexer(_service_of)
        for record in api.store.list(ENDPOINT_SLICES):
            key = key_of(ENDPOINT_SLICES, record.object)
            self._slices.observe(Event("ADDED", key, record, None, record.revision))
        self._lag = lag
        self._timers: set[asyncio.TimerHandle] = set()
        self._unsubscribe = api.store.subscribe(ENDPOINT_SLICES, self._observe)

    def close(self) -> None:
        """Stop following the endpoints."""
        self._unsubscribe()
        for timer in self._timers:
            timer.cancel()

    def _observe(self, event: Event) -> None:
        if not self._lag:
            self._slices.observe(event)
            return

        def act() -> None:
            self._timers.discard(timer)
            self._slices.observe(event)

        timer = asyncio.get_running_loop().call_later(self._lag, act)
        self._timers.add(timer)

    def resolve(self, *, namespace: str, name: str, port: int) -> Address:
        """Return where to connect to; raises `ServiceUnresolvable`."""
        if self._local.knows(namespace=namespace, name=name):
            return self._local.resolve(namespace=namespace, name=name, port=port)
        service = find(self._api, ObjectKey(SERVICES, namespace, name))
        if service is None:
            raise ServiceUnresolvable(f"service {quote(name)} not found")
        wanted = next((each for each in service["spec"].get("ports") or () if each["port"] == port), None)
        if wanted is None:
            raise ServiceUnresolvable(f"no service port {port} found for service {quote(name)}")
        if external := service["spec"].get("externalName"):
            return Address(external, port)
        found = list(self._endpoints(namespace, name, wanted.get("name", "")))
        candidates = [address for ready, address in found if ready] or [address for _, address in found]
        if not candidates:
            raise ServiceUnresolvable(f"no endpoints available for service {quote(name)}")
        return random.choice(candidates)  # noqa: S311 - it balances load, it keeps no secret

    def _endpoints(self, namespace: str, name: str, port_name: str) -> Iterator[tuple[bool, Address]]:
        """Give the endpoints that are ready, and those that end and still serve."""
        for piece in self._slices.by_index((namespace, name)):
            number = next((each.get("port") for each in piece["ports"] if each.get("name", "") == port_name), None)
            if number is None:
                continue
            for endpoint in piece["endpoints"]:
                conditions, pod = endpoint["conditions"], endpoint.get("targetRef") or {}
                ready = conditions.get("ready", True)
                if ready or (conditions.get("serving") and conditions.get("terminating")):
                    address = Address(endpoint["addresses"][0], number)
                    yield ready, self.locate(namespace, pod.get("name", ""), address)
