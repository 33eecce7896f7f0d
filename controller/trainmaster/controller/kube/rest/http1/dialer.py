"""Opening connections to the server: name, TCP, the tunnel of a proxy, TLS.

Guarantees:
- All of it together has one timeout. A name is resolved once for all connections that need it, and remembered for
  `_RESOLVED_FOR`.
- Every address of a name is tried, in an order that alternates between IPv6 and IPv4, the next one when the one before
  has failed or was silent for a moment (RFC 8305).
- A proxy, also one that speaks TLS itself, leads to an https server through a tunnel (CONNECT): it gets its own
  credentials and the name of the server, nothing else.
- Every failure is a `NotConnected`, since no request has been sent. Name resolutions are measured (K-10).
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from aiohappyeyeballs import AddrInfoType, start_connection

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import Peer, RestConfig
from trainmaster.controller.kube.rest.http1.connection import BROKEN, Connection, MalformedAnswer
from trainmaster.controller.kube.rest.http1.errors import cause_of, no_tunnel, not_connected
from trainmaster.metrics import rest_client as metrics

_RESOLVED_FOR: Final = 10.0
"""Seconds; a name that leads elsewhere is followed soon, and a burst of connections asks once."""

_NEXT_ADDRESS_AFTER: Final = 0.25
"""Seconds (RFC 8305, section 8)."""

_default_context: Final = functools.cache(ssl.create_default_context)


class Dialer:
    """Opens connections to the server of a configuration, directly or through its proxy, in `timeout` seconds each."""

    def __init__(self, config: RestConfig, *, clock: Clock, timeout: float) -> None:
        self.server = config.peer
        self.proxy = Peer(config.proxy, "the proxy", is_proxy=True) if config.proxy else None
        self.nearest = self.proxy or self.server
        """What connections are made to."""
        self._config = config
        self._clock = clock
        self._timeout = timeout
        self._resolving = asyncio.Lock()
        self._addresses: Sequence[AddrInfoType] = []
        self._resolved_at = float("-inf")

    def context(self) -> ssl.SSLContext | None:
        """The TLS context of connections that are opened now; None if they are without TLS."""
        if not self.server.tls and not self.nearest.tls:
            return None
        return self._config.ssl_context or _default_context()

    async def dial(self, where: str) -> Connection:
        """Open a connection for the request that `where` names, or raise `NotConnected`."""
        connection, peer = Connection(context=self.context()), self.nearest
        try:
            async with self._clock.timeout(self._timeout):
                await self._connect(connection)
                if self.proxy is not None and self.server.tls:
                    await self._open_tunnel(connection, self.proxy, where)
                    peer = self.server
                    connection = await self._start_tls(connection)
        except BaseException as error:
            connection.abort()
            if not isinstance(cause := cause_of(error), BROKEN):
                raise
            raise not_connected(where, peer, cause, timeout=self._timeout) from cause
        return connection

    async def _connect(self, connection: Connection) -> None:
        """Connect to the server or the proxy, with TLS where it speaks that."""
        connected = await start_connection(await self._resolved(), happy_eyeballs_delay=_NEXT_ADDRESS_AFTER)
        context, name = (connection.context, self.nearest.tls_name) if self.nearest.tls else (None, None)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, sock=connected, ssl=context, server_hostname=name
            )
        except BaseException:
            connected.close()
            raise

    async def _open_tunnel(self, connection: Connection, proxy: Peer, where: str) -> None:
        server = f"{f'[{self.server.host}]' if ':' in self.server.host else self.server.host}:{self.server.port}"
        login = f"Proxy-Authorization: {proxy.login}\r\n" if proxy.login else ""
        request = f"CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n{login}\r\n".encode()
        answer = await connection.exchange(request, where=where, bodiless=True)
        if answer.status >= 300:
            raise no_tunnel(where, proxy, answer.status, answer.reason)
        if answer.has_surplus:
            raise MalformedAnswer("it sent more than its answer to CONNECT")

    async def _start_tls(self, tunnel: Connection) -> Connection:
        """Return the connection within a tunnel."""
        inner, loop = Connection(context=tunnel.context), asyncio.get_running_loop()
        if tunnel.channel is not None and tunnel.is_open and inner.context is not None:
            inner.channel = tunnel.channel
            secure = await loop.start_tls(tunnel.channel, inner, inner.context, server_hostname=self.server.tls_name)
            if inner.is_open:
                inner.connection_made(cast("asyncio.Transport", secure))
                return inner
        raise ConnectionResetError("the tunnel was closed")

    async def _resolved(self) -> Sequence[AddrInfoType]:
        host, port = self.nearest.host, self.nearest.port
        with suppress(ValueError):
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
        async with self._resolving:
            now = self._clock.monotonic()
            if now - self._resolved_at > _RESOLVED_FOR:
                try:
                    self._addresses = await asyncio.get_running_loop().getaddrinfo(
                        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                    )
                finally:
                    metrics.DNS_DURATION.labels(host).observe(self._clock.monotonic() - now)
                self._resolved_at = now
        return self._addresses
