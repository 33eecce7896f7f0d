"""Finds the endpoint behind a Service for one connection: any of those that are ready, by its EndpointSlices.

- A pod that is not ready gets no new connection. Where none is ready, those that end and still serve get them, as with
  kube-proxy.
- Services that are registered by hand (`LocalServices`) come first: the embedded manager has no pod.
- With a `lag` it acts on changes of endpoints so many seconds later, as what stands between a pod and its clients in a
  real cluster does.
- Who calls webhooks asks anew for each request, so that the endpoints share them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

from trainmaster.devcluster.apiserver.admission.webhook import Address, LocalServices, ServiceUnresolvable
from trainmaster.devcluster.apiserver.errors import quote
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, SERVICES
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import key_of
from trainmaster.devcluster.controllers.endpointslice import SERVICE_NAME
from trainmaster.devcluster.controllers.indexer import Indexer, find
from trainmaster.runtime.jsontree import JsonObject

Locate = Callable[[str, str, Address], Address]
"""Tells where a pod, given by namespace and name, really listens that says it listens at an address."""


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
