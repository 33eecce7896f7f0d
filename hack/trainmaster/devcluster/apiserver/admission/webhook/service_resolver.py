"""The service resolver: where the services of webhooks listen, as the embedded cluster has no service network.

Whoever serves webhooks, such as the embedded manager, registers the address under the name of its service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

_HTTPS_PORT = 443


class ServiceUnresolvable(Exception):
    """There is no way to a service; the message says so in the words of the API server."""


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int


class ServiceResolver(Protocol):
    """Finds the address behind a service."""

    def resolve(self, *, namespace: str, name: str, port: int) -> Address:
        """Return where to connect to; raises `ServiceUnresolvable`."""


class LocalServices:
    """Services that listen on this machine."""

    def __init__(self) -> None:
        self._addresses: dict[tuple[str, str, int], Address] = {}

    def register(self, *, namespace: str, name: str, address: str, local_port: int) -> Callable[[], None]:
        """Let `https://name.namespace.svc` lead to an address, instead of any before; returns what ends that."""
        key, target = (namespace, name, _HTTPS_PORT), Address(address, local_port)
        self._addresses[key] = target

        def forget() -> None:
            if self._addresses.get(key) is target:
                del self._addresses[key]

        return forget

    def resolve(self, *, namespace: str, name: str, port: int) -> Address:
        """Return where a service listens; raises `ServiceUnresolvable`."""
        found = self._addresses.get((namespace, name, port))
        if found is not None:
            return found
        if any(key[:2] == (namespace, name) for key in self._addresses):
            raise ServiceUnresolvable(f'no service port {port} found for service "{name}"')
        raise ServiceUnresolvable(f'service "{name}" not found')
