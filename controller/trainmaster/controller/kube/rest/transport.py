"""Carrying requests to the API server and answers back: the seam under `KubeClient`.

Guarantees of every transport:
- It sends each request at most once, because only the caller knows what may be repeated (T-3).
- T-4: watches and requests have connections of their own, so that watches cannot starve requests. The watches are not
  limited in number, the requests are.
- T-5: a connection without work is closed after `IDLE_AT_MOST`, long before servers and balancers close theirs, so that
  a write seldom meets a connection that is just being closed.
- Every failure is one of the `TransportError` family, with what happened, where, and what to look at. `NotConnected`
  means that the server cannot have seen the request.
- P-36: `close` gives up a connection whose answer was not read to its end; one that was read returns to the pool.
  Leaving the transport closes every connection.
- K-10: open connections are counted by pool, and name resolutions measured.
- The TLS context of `RestConfig` is looked up for each request: a new one serves all connections that are opened
  from then on, and none that was opened under the old one is used again.

It knows no retries, no timeouts of requests, no credentials and no JSON: those are the client's, above the seam, where
a simulated server exercises them too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol, Self, TypeAlias

CONNECTIONS: Final = 100
"""Connections for requests; beyond it they queue here instead of in the server's priority levels."""

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for name resolution, TCP and TLS together."""

IDLE_AT_MOST: Final = 15.0
"""Seconds; kube-apiserver keeps an idle connection for minutes, cloud balancers for about one."""


Guard: TypeAlias = Callable[[], None]
"""Raises `NotLeading` if nothing may be written any more."""


class Response(Protocol):
    """An answer whose body has yet to be read."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, to be looked up by their canonical names, for instance `Retry-After`."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives; raises `TransportError` if the connection breaks before its end."""

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
        guard: Guard | None = None,
    ) -> Response:
        """Send one request, once, and return when the headers of its answer have arrived.

        Args:
            guard: Called with the connection in hand, immediately before bytes are written. What it raises is raised,
                and the server has not got the whole request then.

        Raises:
            NotConnected: The server cannot have seen the request.
            TransportError: No answer came; whether the server acted is unknown.
        """

    async def __aenter__(self) -> Self:
        """Get ready."""

    async def __aexit__(self, *exc_info: object) -> None:
        """Close all connections."""
