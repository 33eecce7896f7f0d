"""Carrying requests to the API server and answers back: the seam under `KubeClient`.

Guarantees:
- A transport sends each request at most once: aiohttp's own second try of GET, PUT and DELETE is switched off, because
  only the caller knows what may be repeated (T-3).
- T-4: watches and requests have connections of their own, so that watches cannot starve requests. The watches are not
  limited in number, the requests are.
- T-5: a connection without work is closed after `IDLE_AT_MOST`, long before servers and balancers close theirs, so that
  a write seldom meets a connection that is just being closed.
- Every failure is one of the `TransportError` family, with what happened, where, and what to look at. `NotConnected`
  means that the server cannot have seen the request.
- P-36: `close` gives up a connection whose answer was not read to its end; one that was read returns to the pool.
  Leaving the transport closes every connection, those too that were given up and still wait for the server's farewell.
- K-10: open connections are counted by pool, and name resolutions measured.
- The TLS context of `RestConfig` is looked up for each request: a new one serves all connections that are opened
  from then on, and none that was opened under the old one is used again.

It knows no retries, no timeouts of requests, no credentials and no JSON: those are the client's, above the seam, where
a simulated server exercises them too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any, Final, Protocol, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import StreamBroken
from trainmaster.controller.kube.rest.transport_errors import transport_error
from trainmaster.metrics import rest_client as metrics

CONNECTIONS: Final = 100
"""Connections for requests; beyond it they queue here instead of in the server's priority levels."""

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for name resolution, TCP and TLS together."""

IDLE_AT_MOST: Final = 15.0
"""Seconds; kube-apiserver keeps an idle connection for minutes, cloud balancers for about one."""

_IN_ONE_PIECE: Final = 2**18
"""Bytes of a body that are written at once."""

_TURNS_TO_CLOSE: Final = 20
"""More turns of the event loop than a connection takes to notice that it is shut down, TLS and all."""

_READ_BUFFER: Final = 2**18
"""What one read may bring; a frame may be longer (P-3)."""


class Response(Protocol):
    """An answer whose body has yet to be read."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, to be looked up by their canonical names, for instance `Retry-After`."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives.

        Raises:
            TransportError: The connection broke before the end of the body.
        """

    def close(self) -> None:
        """Give the answer up; its connection is dropped if the body was not read to its end."""


class Transport(Protocol):
    """Sends requests; an async context manager that owns its connections."""

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        streaming: bool,
    ) -> Response:
        """Send one request, once, and return when the headers of its answer have arrived.

        Raises:
            NotConnected: The server cannot have seen the request.
            TransportError: No answer came; whether the server acted is unknown.
        """

    async def __aenter__(self) -> Self:
        """Get ready."""

    async def __aexit__(self, *exc_info: object) -> None:
        """Close all connections."""


class HttpTransport:
    """HTTP/1.1 by aiohttp, over TLS, proxies and everything else that a `RestConfig` asks for."""

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
    ) -> Response:
        """Send one request, once, and return when the headers of its answer have arrived."""
        session = self._watches if streaming else self._requests
        if session is None:
            raise RuntimeError("the client is not open; use it inside `async with KubeClient(...)`")
        config = self._config
        url = config.server + path
        try:
            response = await session.request(
                method,
                # Paths come escaped; another round of escaping or unescaping would name another object.
                URL(url, encoded=True),
                params=params,
                headers=headers,
                # A large body goes out in pieces, between which others have their turn.
                data=body if body is None or len(body) <= _IN_ONE_PIECE else BytesIO(body),
                proxy=config.proxy,
                ssl=config.ssl_context if config.ssl_context is not None else True,
                server_hostname=config.server_hostname,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise transport_error(
                error, method=method, url=url, timeout=self._connect_timeout, proxy=config.proxy
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
        )
        # aiohttp offers no public switch; its own test client sets the same attribute. A test counts the requests.
        session._retry_connection = False  # noqa: SLF001 - see above
        return session


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
