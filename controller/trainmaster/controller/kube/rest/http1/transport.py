"""Requests over connections of our own: HTTP/1.1 as far as a Kubernetes client needs it, at a fraction of the cost of a
library for everything.

Guarantees, besides those of every transport:
- Nothing is ever sent twice: a connection that the server closed while it was idle is replaced before anything was
  written to it, and any failure afterwards is the caller's (T-3).
- A request whose caller is cancelled, or gives its answer up, takes its connection with it.
- Nothing of a request can end a line of its head: a path or a header that holds a line break is a `ValueError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Self
from urllib.parse import urlencode

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest import transport_errors
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.http1.dialing import Dialer, Server
from trainmaster.controller.kube.rest.http1.parser import MalformedAnswer
from trainmaster.controller.kube.rest.http1.pool import Pool
from trainmaster.controller.kube.rest.transport import CONNECT_TIMEOUT, CONNECTIONS, Guard, Response

_NOT_IN_A_HEADER: Final = re.compile(r"[\x00\r\n]")
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_HEADS_AT_MOST: Final = 64
"""How many sets of headers are remembered as bytes; a client has a dozen, and new ones when its token changes."""


class Http1Transport:
    """HTTP/1.1 over TCP and TLS, without proxies."""

    def __init__(
        self,
        config: RestConfig,
        *,
        clock: Clock,
        connections: int = CONNECTIONS,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        self._server = Server.parse(config.server)
        self._config = config
        self._clock = clock
        self._connections = connections
        self._connect_timeout = connect_timeout
        self._requests: Pool | None = None
        self._watches: Pool | None = None
        self._heads: dict[tuple[str, ...], bytes] = {}
        """By the names of headers, followed by their values."""

    async def __aenter__(self) -> Self:
        dialer = Dialer(self._server, self._config, clock=self._clock, timeout=self._connect_timeout)
        self._requests = Pool("request", dialer, clock=self._clock, limit=self._connections)
        # The next watch is seconds to minutes away: a connection kept for it would only be one more to lose.
        self._watches = Pool("watch", dialer, clock=self._clock, limit=None)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pools = self._requests, self._watches
        self._requests = self._watches = None
        for pool in pools:
            if pool is not None:
                await pool.close()

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
        if pool is None:
            raise RuntimeError("the client is not open; use it inside `async with KubeClient(...)`")
        server = self._server
        where = f"{method} {server.origin}{server.path}{path}"
        request = self._request(method, path, params, headers, body)
        connection = await pool.take(where)
        try:
            return await connection.exchange(request, where=where, bodiless=method == "HEAD", guard=guard)
        except (OSError, EOFError, MalformedAnswer) as error:
            raise transport_errors.no_answer(where, server.origin, error) from error

    def _request(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
    ) -> bytes:
        target = f"{self._server.path}{path}"
        if params:
            target = f"{target}{'&' if '?' in target else '?'}{_query(tuple(params.items()))}"
        # Paths come escaped; another round of escaping or unescaping would name another object.
        if not (target.isascii() and target.isprintable()) or " " in target:
            raise ValueError(f"{target!r} cannot be the target of a request")
        start = f"{method} {target or '/'} HTTP/1.1\r\n".encode("ascii")
        if body is None:
            length = b"Content-Length: 0\r\n" if method in _WITH_BODY else b""
            return b"%b%b%b\r\n" % (start, self._head(headers), length)
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (start, self._head(headers), len(body), body)

    def _head(self, headers: Mapping[str, str]) -> bytes:
        """Return the headers that have nothing to do with the body, as bytes."""
        key = (*headers, *headers.values())
        head = self._heads.get(key)
        if head is None:
            lines = {"Host": self._server.netloc}
            if self._server.login:
                lines["Authorization"] = self._server.login
            lines |= headers
            for name, value in lines.items():
                if _NOT_IN_A_HEADER.search(name + value):
                    raise ValueError(f"the header {name!r} cannot be sent: there is a line break in it")
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode()
            if len(self._heads) >= _HEADS_AT_MOST:
                self._heads.clear()
            self._heads[key] = head
        return head


@lru_cache(maxsize=64)
def _query(params: tuple[tuple[str, str], ...]) -> str:
    """Escape parameters, which are the same for most requests of a kind."""
    return urlencode(params)
