"""Lets pods reach Services by name: listens at an address for each Service and passes connections on to its endpoints.

The address follows from the name of the Service, and the hosts files of pods in namespaces have it. It is one of the
loopback interface; `spec.clusterIP`, which lies in a network that the host does not have, is not reached. Ports below
1024 take rights that the cluster mostly has not: those are left out, and that is logged once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeAlias

import structlog

from trainmaster.devcluster.apiserver.admission.webhook import Address, ServiceResolver, ServiceUnresolvable
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import SERVICES
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import find
from trainmaster.devcluster.kubelet.network.addresses import service_address
from trainmaster.runtime.jsontree import JsonObject

_CHUNK = 64 * 1024

_Listeners: TypeAlias = dict[int, asyncio.Server | None]

_log = structlog.get_logger(__name__)


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
