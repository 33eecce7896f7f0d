"""Opening connections to the server: name, TCP, TLS.

Guarantees:
- All three together have one timeout. A name that several connections need at once is resolved once, and remembered
  for `_RESOLVED_FOR`.
- Every address of a name is tried, in an order that alternates between IPv6 and IPv4, the next one when the one before
  has failed or was silent for a moment (RFC 8305).
- Every failure is a `NotConnected`, since no request has been sent.
- K-10: name resolutions are measured.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from aiohappyeyeballs import AddrInfoType, start_connection

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest import transport_errors
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.http1.connection import Connection, Owner
from trainmaster.controller.kube.rest.singleflight import SingleFlight
from trainmaster.metrics import rest_client as metrics

_RESOLVED_FOR: Final = 10.0
"""Seconds, as aiohttp has them."""

_NEXT_ADDRESS_AFTER: Final = 0.25
"""Seconds (RFC 8305, section 8)."""

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The parts of the URL of a server."""

    origin: str
    """Without a user, its password and a path."""
    netloc: str
    host: str
    port: int
    tls: bool
    path: str
    """What the paths of all its requests begin with."""
    login: str
    """The header by which the user and the password of the URL are sent; empty without them."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Take a URL apart."""
        parts = urlsplit(url)
        user, at, netloc = parts.netloc.rpartition("@")
        login = base64.b64encode(unquote(user).encode()).decode()
        return cls(
            origin=f"{parts.scheme}://{netloc}",
            netloc=netloc,
            host=parts.hostname or "",
            port=parts.port or _PORTS.get(parts.scheme, 0),
            tls=parts.scheme == "https",
            path=parts.path,
            login=f"Basic {login}" if at else "",
        )


class Dialer:
    """Opens connections to one server.

    Args:
        server: Where it is.
        config: What TLS needs.
        clock: The time.
        timeout: Seconds for one connection.
    """

    def __init__(self, server: Server, config: RestConfig, *, clock: Clock, timeout: float) -> None:
        self._server = server
        self._config = config
        self._clock = clock
        self._timeout = timeout
        self._resolving: SingleFlight[str] = SingleFlight()
        self._addresses: Sequence[AddrInfoType] = []
        self._resolved_at = float("-inf")

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context of connections that are opened now; None if they are without TLS."""
        if not self._server.tls:
            return None
        return self._config.ssl_context or _default_context()

    async def dial(self, owner: Owner, where: str) -> Connection:
        """Open a connection; `where` names the request that needs it.

        Raises:
            NotConnected: There is none.
        """
        server = self._server
        make = functools.partial(
            Connection,
            owner,
            context=self.context,
            server_hostname=(self._config.server_hostname or server.host).rstrip("."),
        )
        try:
            async with self._clock.timeout(self._timeout):
                return await self._connected(make, where)
        except TimeoutError as error:
            if error.errno is not None:  # the network has given up, before us
                raise transport_errors.unreachable(where, server.origin, error) from error
            raise transport_errors.timed_out(where, server.origin, self._timeout) from error
        except ssl.SSLCertVerificationError as error:
            raise transport_errors.untrusted(where, server.origin, error) from error
        except ssl.SSLError as error:
            raise transport_errors.no_tls(where, server.origin, error) from error
        except OSError as error:
            raise transport_errors.unreachable(where, server.origin, error) from error

    async def _connected(self, make: functools.partial[Connection], where: str) -> Connection:
        addresses = await self._resolved(where)
        connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER)
        try:
            _, connection = await asyncio.get_running_loop().create_connection(make, sock=connected)
        except BaseException:
            connected.close()
            raise
        try:
            await connection.shake_hands()
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _resolved(self, where: str) -> Sequence[AddrInfoType]:
        host, port = self._server.host, self._server.port
        for family in (socket.AF_INET, socket.AF_INET6):
            if _is_address(family, host):
                return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
        async with self._resolving.turn(host):
            now = self._clock.monotonic()
            if now - self._resolved_at > _RESOLVED_FOR:
                try:
                    self._addresses = await asyncio.get_running_loop().getaddrinfo(
                        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                    )
                except OSError as error:
                    raise transport_errors.unresolved(where, host, error) from error
                finally:
                    metrics.DNS_DURATION.labels(host).observe(self._clock.monotonic() - now)
                self._resolved_at = now
        return self._addresses


@functools.cache
def _default_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _is_address(family: socket.AddressFamily, host: str) -> bool:
    try:
        socket.inet_pton(family, host)
    except OSError:
        return False
    return True
