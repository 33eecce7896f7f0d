"""Requests through a proxy: by aiohttp, which knows the kinds of proxies and TLS within TLS.

Guarantees, besides those of every transport:
- aiohttp's own second try of GET, PUT and DELETE is switched off (T-3).
- Leaving closes those connections too that were given up and still wait for the server's farewell.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from io import BytesIO
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest import transport_errors
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import NotConnected, NotLeading, StreamBroken, TransportError
from trainmaster.controller.kube.rest.transport import CONNECT_TIMEOUT, CONNECTIONS, IDLE_AT_MOST, Guard, Response
from trainmaster.metrics import rest_client as metrics

_TURNS_TO_CLOSE: Final = 20
"""More turns of the event loop than a connection takes to notice that it is shut down, TLS and all."""

_READ_BUFFER: Final = 2**18
"""What one read may bring; a frame may be longer (P-3)."""

_CHECK_PROXY: Final = "check proxy-url, HTTPS_PROXY and NO_PROXY"

_guard: ContextVar[Guard | None] = ContextVar("guard", default=None)
"""That of the request that this task sends: aiohttp makes the request itself, and takes nothing along for it."""


class ProxiedTransport:
    """HTTP/1.1 by aiohttp."""

    def __init__(
        self,
        config: RestConfig,
        *,
        clock: Clock,
        connections: int = CONNECTIONS,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        self._config = config
        self._clock = clock
        self._connections = connections
        self._connect_timeout = connect_timeout
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._open: set[socket.socket] = set()

    async def __aenter__(self) -> Self:
        self._requests = self._session("request", limit=self._connections)
        self._watches = self._session("watch", limit=0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        sessions = self._requests, self._watches
        self._requests = self._watches = None
        for session in sessions:
            if session is not None:
                await session.close()
        # aiohttp forgets a connection that it was told to close, and asyncio gives a server 30 s to take leave of TLS.
        for left in self._open:
            with suppress(OSError):
                left.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS_TO_CLOSE):
            if not self._open:
                break
            await asyncio.sleep(0)

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        streaming: bool,
        guard: Guard | None = None,
    ) -> Response:
        """Send one request, once, and return when the headers of its answer have arrived."""
        session = self._watches if streaming else self._requests
        if session is None:
            raise RuntimeError("the client is not open; use it inside `async with KubeClient(...)`")
        config = self._config
        url = config.server + path
        _guard.set(guard)
        try:
            response = await session.request(
                method,
                # Paths come escaped; another round of escaping or unescaping would name another object.
                URL(url, encoded=True),
                params=params,
                headers=headers,
                data=None if body is None else _Body(body, guard),
                proxy=config.proxy,
                ssl=config.ssl_context if config.ssl_context is not None else True,
                server_hostname=config.server_hostname,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, NotLeading):
                raise error.__cause__ from None
            raise _transport_error(
                error, where=f"{method} {url}", proxy=config.proxy or "", timeout=self._connect_timeout
            ) from error
        return _HttpResponse(response, what=f"{method} {url}")

    def _session(self, pool: str, *, limit: int) -> aiohttp.ClientSession:
        watches = pool == "watch"
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit,
                # The next watch is seconds to minutes away: a connection kept for it would only be one more to lose.
                force_close=watches,
                keepalive_timeout=None if watches else IDLE_AT_MOST,
                resolver=_TimedResolver(self._clock),
                socket_factory=_CountedSocket.factory(pool, self._open),
            ),
            # The whole of a request is the client's to limit, because a watch has no end.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            request_class=_GuardedRequest,
        )
        # aiohttp offers no public switch; its own test client sets the same attribute. A test counts the requests.
        session._retry_connection = False  # noqa: SLF001 - see above
        return session


class _Body(BytesIO):
    """A body, which goes out in pieces, between which others have their turn: the guard is asked before each.

    aiohttp writes bodies in a task of its own, in a later turn of the loop than it takes the connection in.
    """

    def __init__(self, body: bytes, guard: Guard | None) -> None:
        super().__init__(body)
        self._guard = guard

    def read(self, size: int | None = -1, /) -> bytes:
        if self._guard is not None:
            self._guard()
        return super().read(size)


class _GuardedRequest(aiohttp.ClientRequest):
    """A request that asks the guard when it has its connection."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        guard = _guard.get()
        if guard is not None:
            guard()
        return await super().send(conn)


class _HttpResponse:
    """An answer of aiohttp."""

    __slots__ = ("_response", "_what")

    def __init__(self, response: aiohttp.ClientResponse, *, what: str) -> None:
        self._response = response
        self._what = what

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise StreamBroken(f"{self._what}: the connection broke before the end of the answer: {reason}") from error

    def close(self) -> None:
        # Not release(): that would wait for the rest of an answer that nobody reads any more.
        self._response.close()


class _TimedResolver(AbstractResolver):
    """The resolver of the system, on the clock (K-10)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        started = self._clock.monotonic()
        try:
            return await self._resolver.resolve(host, port, family)
        finally:
            metrics.DNS_DURATION.labels(host).observe(self._clock.monotonic() - started)

    async def close(self) -> None:
        await self._resolver.close()


class _CountedSocket(socket.socket):
    """A socket that is counted from its making until it is closed; aiohttp itself does not tell."""

    counter: Any = None
    among: set[socket.socket]

    @classmethod
    def factory(cls, pool: str, among: set[socket.socket]) -> Any:
        """Return what aiohttp calls to make the sockets of one pool, which are in `among` while they are open."""
        gauge = metrics.CONNECTIONS.labels(pool)

        def make(address: tuple[Any, ...]) -> socket.socket:
            family, kind, protocol, *_ = address
            made = cls(family=family, type=kind, proto=protocol)
            made.counter, made.among = gauge, among
            among.add(made)
            gauge.inc()
            return made

        return make

    def close(self) -> None:
        gauge, self.counter = self.counter, None
        if gauge is not None:
            self.among.discard(self)
            gauge.dec()
        super().close()


def _transport_error(error: aiohttp.ClientError | OSError, *, where: str, proxy: str, timeout: float) -> TransportError:
    parts = urlsplit(proxy)
    peer = f"the proxy {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return transport_errors.untrusted(where, peer, error.certificate_error)
        case aiohttp.ClientConnectorSSLError():
            return transport_errors.no_tls(where, peer, error)
        case aiohttp.ClientConnectorDNSError():
            return transport_errors.unresolved(where, error.host, error)
        case aiohttp.ClientProxyConnectionError():
            reason = transport_errors.reason_of(error)
            return NotConnected(f"{where}: no connection to {peer} ({reason}); {_CHECK_PROXY}")
        case aiohttp.ClientHttpProxyError():
            return NotConnected(f"{where}: {peer} refused to connect: {error.status} {error.message}; {_CHECK_PROXY}")
        case aiohttp.ConnectionTimeoutError():
            return transport_errors.timed_out(where, peer, timeout)
        case aiohttp.ClientConnectorError():
            return transport_errors.unreachable(where, peer, error.os_error)
        case aiohttp.ServerDisconnectedError():
            return transport_errors.no_answer(where, peer, EOFError())
        case _:
            return transport_errors.no_answer(where, peer, error)
