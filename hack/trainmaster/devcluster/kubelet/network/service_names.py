"""Finds out under which addresses Services are found, as the DNS of a cluster does, and lets the pods know.

- A Service with an address has that, from the moment it exists.
- A headless Service has the addresses of its endpoints that are ready, by its EndpointSlices; with
  `publishNotReadyAddresses` these call all ready that have an address. Names of endpoints come and go with them, also
  for pods that have run for long.
- `externalName` is a matter of DNS proper, and has no address here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, SERVICES
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.endpointslice import SERVICE_NAME, is_headless
from trainmaster.devcluster.controllers.indexer import Indexer, find
from trainmaster.devcluster.kubelet.network.addresses import service_address
from trainmaster.devcluster.kubelet.network.hosts import HostsTable, Record
from trainmaster.runtime.jsontree import JsonObject

_RETRY_DELAY = 1.0


class ServiceNames(SingleLoopController):
    """Keeps the names of Services in the hosts files; keys are Services.

    `cluster` is that of the proxy, which listens at the addresses of Services that have one.
    """

    def __init__(self, api: Api, hosts: HostsTable, *, cluster: str) -> None:
        self._api = api
        self._hosts = hosts
        self._cluster = cluster
        self._slices = Indexer(_service_of)
        self._loop = ControlLoop("service-names", self._reconcile, api=api)
        self._loop.watch(ENDPOINT_SLICES, self._slices.observe)
        self._loop.watch_keys(SERVICES)
        self._loop.watch(ENDPOINT_SLICES, self._slice_changed)

    def _slice_changed(self, event: Event) -> None:
        for record in (event.previous, event.record):
            if record is not None and (service := _service_of(record.object)):
                self._loop.add(service)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        records = list(records_of(find(self._api, key), self._slices.by_index(key), cluster=self._cluster))
        try:
            self._hosts.publish(key, records)
        except OSError:  # a full disk, of which the store tells
            return _RETRY_DELAY
        return None


def _service_of(piece: JsonObject) -> ObjectKey | None:
    name = (piece["metadata"].get("labels") or {}).get(SERVICE_NAME)
    return ObjectKey(SERVICES, piece["metadata"]["namespace"], name) if name else None


def records_of(service: JsonObject | None, slices: Iterable[JsonObject], *, cluster: str) -> Iterator[Record]:
    """Give the addresses under which a Service is found; None is one that is gone."""
    if service is None:
        return
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    if service["spec"].get("clusterIP") and not is_headless(service):
        yield Record(service_address(namespace, name, cluster=cluster), namespace, name)
    elif is_headless(service):
        for piece in slices:
            if piece["addressType"] == "FQDN":
                continue
            for endpoint in piece.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready", True):
                    for address in endpoint["addresses"]:
                        yield Record(address, namespace, name, endpoint.get("hostname") or "")
