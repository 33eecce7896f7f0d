"""Which transport serves a `RestConfig`."""

from __future__ import annotations

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.http1.transport import Http1Transport
from trainmaster.controller.kube.rest.proxied_transport import ProxiedTransport
from trainmaster.controller.kube.rest.transport import CONNECT_TIMEOUT, CONNECTIONS, Transport


def http_transport(
    config: RestConfig,
    *,
    clock: Clock,
    connections: int = CONNECTIONS,
    connect_timeout: float = CONNECT_TIMEOUT,
) -> Transport:
    """Return what carries requests to the server of a configuration: through its proxy, or by the shortest way."""
    kind = ProxiedTransport if config.proxy else Http1Transport
    return kind(config, clock=clock, connections=connections, connect_timeout=connect_timeout)
