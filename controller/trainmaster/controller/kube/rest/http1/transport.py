"""HTTP/1.1 to the server of a configuration, directly or through its proxy.

Guarantees, besides those of every transport:
- Nothing is ever sent twice: a connection that the server closed while it was idle is replaced before anything was
  written to it, and any failure afterwards is the caller's (T-3).
- Of requests beyond the limit the oldest is next. Of idle connections the one that was used last is used first: what a
  burst has opened goes away after it.
- Nothing of a request can end a line of its head: a path or a header that holds a line break is refused.
"""

from __future__ import annotations

import asyncio
import functools
import re
import sys
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import urlencode

from trainmaster.controller.kube.clock import Clock, Timer
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import NotConnected, TransportError
from trainmaster.controller.kube.rest.http1.connection import BROKEN, Connection
from trainmaster.controller.kube.rest.http1.dialer import Dialer
from trainmaster.controller.kube.rest.http1.errors import no_answer
from trainmaster.controller.kube.rest.transport import CONNECT_TIMEOUT, CONNECTIONS, IDLE_AT_MOST, Guard, Response
from trainmaster.metrics import rest_client as metrics

_LINE_BREAK: Final = re.compile(r"[\x00\r\n]")


class HttpTransport:
    """Requests to one server: a `Transport`."""

    def __init__(
        self,
        config: RestConfig,
        *,
        clock: Clock,
        connections: int = CONNECTIONS,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        dialer = self._dialer = Dialer(config, clock=clock, timeout=connect_timeout)
        self._requests = Pool("request", dialer, clock=clock, limit=connections, idle_at_most=IDLE_AT_MOST)
        # The next watch is seconds to minutes away: a connection kept for it would only be one more to lose.
        self._watches = Pool("watch", dialer, clock=clock, limit=sys.maxsize, idle_at_most=0.0)

    async def __aenter__(self) -> Self:
        self._requests.is_open = self._watches.is_open = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._requests.close()
        await self._watches.close()

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
        pool = self._watches if streaming else self._requests
        server = self._dialer.server
        where = f"{method} {server.name}{server.path}{path}"
        request = self._request(method, path, params, headers, body)
        connection = await pool.take(where)
        try:
            return await connection.exchange(request, where=where, bodiless=method == "HEAD", guard=guard)
        except BROKEN as error:
            if not pool.is_open:
                raise TransportError(f"{where}: the client was closed before the answer came") from error
            raise no_answer(where, server if server.tls else self._dialer.nearest, error) from error

    def _request(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
    ) -> bytes:
        server, proxy = self._dialer.server, self._dialer.proxy
        target = f"{server.path}{path}" or "/"
        if params:
            target = f"{target}{'&' if '?' in target else '?'}{_query(tuple(params.items()))}"
        lines = {"Host": server.netloc}
        if server.login:
            lines["Authorization"] = server.login
        if proxy is not None and not server.tls:  # there is no tunnel: the proxy reads the request
            target = f"{server.name}{target}"
            if proxy.login:
                lines["Proxy-Authorization"] = proxy.login
        lines |= headers
        if body is not None or method in {"POST", "PUT", "PATCH"}:
            lines["Content-Length"] = str(len(body or b""))
        # Paths come escaped; another round of escaping or unescaping would name another object.
        if not (target.isascii() and target.isprintable()) or " " in target:
            raise ValueError(f"{target!r} cannot be the target of a request")
        if _LINE_BREAK.search("".join([*lines, *lines.values()])):
            raise ConfigurationError("a header with a line break cannot be sent; is one in a token of the kubeconfig?")
        head = "".join([f"{name}: {value}\r\n" for name, value in lines.items()])
        return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")


class Pool:
    """The connections of one kind: at most `limit` in use, and each kept for `idle_at_most` seconds without work."""

    def __init__(self, name: str, dialer: Dialer, *, clock: Clock, limit: int, idle_at_most: float) -> None:
        self._dialer = dialer
        self._clock = clock
        self._turns = asyncio.Semaphore(limit)
        self._idle_at_most = idle_at_most
        self._gauge = metrics.CONNECTIONS.labels(name)
        self._open: set[Connection] = set()
        self._idle: dict[Connection, Timer] = {}
        """With what closes them in time; the one that was used last is the last."""
        self.is_open = False

    async def take(self, where: str) -> Connection:
        """Return a connection for the request that `where` names; it comes back by `given_back`.

        Raises:
            NotConnected: There is none to be had.
        """
        await self._turns.acquire()
        if not self.is_open:
            self._turns.release()
            raise NotConnected(f"{where}: the client is not open")
        while self._idle:
            connection, closing = self._idle.popitem()
            closing.cancel()
            if connection.is_open and connection.context is self._dialer.context():
                return connection
            connection.abort()
        try:
            connection = await self._dialer.dial(where)
        except BaseException:
            self._turns.release()
            raise
        connection.owner = self
        if connection.is_open:
            self._gauge.inc()
            self._open.add(connection)
        if not self.is_open:
            connection.abort()
        return connection

    async def close(self) -> None:
        """Close every connection at once; one that is just being opened is closed when it is."""
        self.is_open = False
        for connection in list(self._open):
            connection.abort()
        for _ in range(20):  # more turns of the event loop than they take to notice that
            if not self._open:
                break
            await asyncio.sleep(0)

    def given_back(self, connection: Connection, *, reusable: bool) -> None:
        """Take a connection back whose exchange is over."""
        self._turns.release()
        if reusable and self._idle_at_most and self.is_open:
            due = self._clock.monotonic() + self._idle_at_most
            self._idle[connection] = self._clock.call_at(due, connection.abort)
        else:
            connection.abort()

    def lost(self, connection: Connection) -> None:
        """Take note of a connection that is closed."""
        if connection in self._open:  # and not lost already while it was being opened
            self._open.discard(connection)
            self._gauge.dec()
        if connection in self._idle:
            self._idle.pop(connection).cancel()


@functools.lru_cache(maxsize=64)
def _query(params: tuple[tuple[str, str], ...]) -> str:
    """Escape parameters, which are the same for most requests of a kind."""
    return urlencode(params)
