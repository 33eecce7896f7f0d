"""TLS serving: what the servers for the API server and for trainers have in common.

Guarantees:
- They serve from the first good certificate on, and look for a newer one, and whether they can be reached, every ten
  seconds (H-10, H-13).
- A connection on which no request comes is closed.
- At the end no new connection is taken (H-14).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Never

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.server.certificates import Certificates
from trainmaster.controller.server.server import AddressInUse

LOOK_EVERY: Final = 10.0
"""Seconds between two looks at the certificates, and at ourselves."""


class FirstRequests:
    """The connections on which no request has come yet.

    Args:
        clock: The time.
        within: Seconds for the first request to come, and for the handshake before it.
    """

    def __init__(self, clock: Clock, *, within: float) -> None:
        self.within = within
        self._clock = clock
        self._awaited: set[RequestHandler] = set()

    def connect(self, runner: web.AppRunner) -> RequestHandler:
        """Make a connection that is closed when its first request does not come; aiohttp would wait for ever."""
        if runner.server is None:
            raise RuntimeError("the runner was not set up")
        connection: RequestHandler = runner.server()
        self._awaited.add(connection)

        def look() -> None:
            if connection in self._awaited and connection.transport is not None:
                connection.transport.close()
            self._awaited.discard(connection)

        self._clock.call_at(self._clock.monotonic() + self.within, look)
        return connection

    def came(self, request: web.Request) -> None:
        """Note that a request has come."""
        self._awaited.discard(request.protocol)


async def certified(certificates: Certificates, *, clock: Clock, complain: Callable[[str], None]) -> None:
    """Wait until there is a certificate; `complain` is called with each new reason for which there is none."""
    told = None
    while not certificates.refresh():
        if certificates.trouble is not None and certificates.trouble != told:
            told = certificates.trouble
            complain(told)
        await clock.sleep(LOOK_EVERY)


@asynccontextmanager
async def listening(
    runner: web.AppRunner,
    first_requests: FirstRequests,
    certificates: Certificates,
    *,
    host: str | None,
    port: int,
    purpose: str,
    remedy: str,
) -> AsyncIterator[asyncio.Server]:
    """Listen while the block runs.

    Raises:
        AddressInUse: The address cannot be bound; the message names it, its purpose, and the remedy.
    """
    await runner.setup()
    try:
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: first_requests.connect(runner),
                host,
                port,
                ssl=certificates.server_context(),
                ssl_handshake_timeout=first_requests.within,
            )
        except OSError as error:
            raise AddressInUse(
                f"cannot serve {purpose} on {host or ''}:{port}: {error.strerror or error}; {remedy}"
            ) from error
        try:
            yield server
        finally:
            server.close()
    finally:
        await runner.cleanup()


async def keep_looking(
    address: tuple[str, int],
    certificates: Certificates,
    *,
    clock: Clock,
    within: float,
    report: Callable[[str | None], None],
) -> Never:
    """Look at ourselves and at the certificates until cancelled.

    Args:
        address: Where we reach ourselves.
        certificates: What is served.
        clock: The time.
        within: Seconds for a connection to come about.
        report: Called after each look with what is wrong; None if nothing is.
    """
    while True:
        dialing = asyncio.create_task(_dial(*address, clock=clock, within=within))
        try:
            report(await asyncio.shield(dialing))
        finally:
            # Given up in the middle of its handshake, the other end of the connection would outlive the server.
            await asyncio.wait({dialing})
        await clock.sleep(LOOK_EVERY)
        certificates.refresh()


async def _dial(host: str, port: int, *, clock: Clock, within: float) -> str | None:
    """Connect to ourselves; returns what went wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # whether others trust the certificate is up to them
    try:
        async with clock.timeout(within):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        return str(error) or type(error).__name__
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return None


def own_address(listening_socket: socket.socket) -> tuple[str, int]:
    """Return where we reach ourselves by a socket that may listen everywhere."""
    host, port = listening_socket.getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104 - how "everywhere" is written
