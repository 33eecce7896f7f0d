"""The one HTTP(S) server: probes, metrics, webhooks and the status server are applications on it.

Guarantees:
- An address that cannot be bound is an error that names it, what is served there, and the option to change.
- With certificates it serves from the first good one on, and looks for a newer one, and whether it can be reached,
  every ten seconds (H-10, H-13). Without one it waits, says why, and goes on as soon as there is one.
- H-13: a probe is answered by a TLS connection to ourselves that is a second old at most, one for all who ask.
- Where it is known how callers verify it (`Verifications`), it is ready only if they would accept its certificate.
- Without TLS, on an address of this machine alone, it answers only who asks for this machine: no page of the web, whose
  name leads here by DNS (rebinding), has a browser read anything.
- A connection on which no request comes is closed, where there is a limit (H-15).
- At the end no new connection is taken, and what has been requested is answered, within limits (H-14).
- Told that the end is near (`drain`) it answers as before and closes each connection with its response, so that who
  keeps connections open makes the next one elsewhere (M-7).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Never, TypeAlias
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestHandler

from trainmaster.controller.configuration import is_loopback, parse_address
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.server.certwatcher import REFRESH_INTERVAL, CertWatcher

log = structlog.get_logger(__name__)


_THEIR_FAULT: Final = (BadHttpMessage, ConnectionError)

CHECKED_FOR: Final = 1.0
"""Seconds for which the outcome of a connection to ourselves is good; it costs some milliseconds of the event loop."""

# What the HTTP library has to say about requests that are none is the business of who sent them.
http_log: Final = logging.getLogger(f"{__name__}.http")
http_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], _THEIR_FAULT)))


Verifications: TypeAlias = Callable[[], Sequence[tuple[ssl.SSLContext, str]]]
"""Returns how those who call a server verify its certificate: with which context, for which name."""

DIAL_TIMEOUT: Final = 5.0
"""Seconds for a connection to ourselves to come about."""

SHUTDOWN_TIMEOUT: Final = 1.0
"""Seconds in which requests are answered at the end; most take milliseconds."""

FIRST_LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks while there is no certificate."""


class AddressInUse(Exception):
    """A server of the manager cannot bind its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Limits of a server, and what it calls itself. Times are in seconds."""

    purpose: str
    """What is served, in the error about an address: `webhooks`."""

    remedy: str = "choose another address in the configuration"
    """What to do about an address that cannot be bound."""

    subject: str = "the server is"
    """Who is served or not, for readiness and the log: `the webhooks are`."""

    unreachable: str = "the server does not answer on {host}:{port}"
    """What readiness says when it cannot connect to itself."""

    without: str = ""
    """How to do without a certificate: `set webhook.enabled to false`."""

    first_request_timeout: float | None = None
    """For the first request of a connection to come, and for the handshake before it; None: no limit."""

    http: Mapping[str, Any] = field(default_factory=dict)
    """More options of `aiohttp.web.AppRunner`."""


@web.middleware
async def _for_this_machine(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        host = urlsplit(f"//{request.headers.get('Host', 'localhost')}").hostname
    except ValueError:
        host = None
    if not is_loopback(host or ""):
        return web.Response(status=421, text="this server is for this machine: ask for it as localhost\n")
    return await handler(request)


class Server:
    """Serves one application, once.

    Args:
        address: Where to listen, as `host:port`, or `:port` for all interfaces.
        certs: The certificate, for HTTPS; None for HTTP.
        now: Returns the time that counts for it; by default that of the clock.
    """

    def __init__(
        self,
        address: str,
        options: ServerOptions,
        *,
        clock: Clock,
        certs: CertWatcher | None = None,
        verifications: Verifications = tuple,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._address = address
        self.options = options
        self._clock = clock
        self._certs = certs
        self._verifications = verifications
        self._now = now or clock.now
        self._not_ready: str | None = f"{options.subject} not served yet"
        self._unreachable = False
        self._draining = False
        self._own: tuple[str, int] | None = None
        """Where we reach ourselves, while `run` serves."""
        self._checking: asyncio.Task[None] | None = None
        self._checked_at = -math.inf
        self._checked: list[tuple[ssl.SSLContext, str]] = []
        """How callers verified us then."""

    def readiness(self) -> str | None:
        """Say why it cannot be used; None if it can. As was last known, while `run` runs."""
        return self._not_ready

    async def check(self) -> str | None:
        """Say why it cannot be used, by a connection to ourselves; None if it can."""
        if self._own is not None:
            await self._dial_once(*self._own)
        return self._not_ready

    def certificate(self) -> str | None:
        """Say what is wrong with the certificate that is served; None if nothing is, or there is none yet."""
        return self._certs.validity(self._now()) if self._certs is not None else None

    def liveness(self) -> str | None:
        """Say why only another process would help: what was served cannot be reached any more."""
        return self._not_ready if self._unreachable else None

    def drain(self) -> None:
        """Close each connection with the next response: the process ends soon."""
        self._draining = True

    async def run(self, app: web.Application) -> Never:
        """Serve until cancelled, from the first good certificate on, and look whether we can be reached.

        Raises:
            AddressInUse: The address cannot be bound.
        """
        if self._certs is not None:
            await self._wait_for_certificate(self._certs)
        async with self.listening(app) as (host, port):
            expires = {} if self._certs is None else {"certificate_expires": self._certs.expires}
            started = f"{self.options.subject} served"
            log.info(started, address=_bound(self._address, port), **expires)
            self._own = host, port
            try:
                while True:
                    await self._dial_once(host, port)
                    await self._clock.sleep(REFRESH_INTERVAL)
                    if self._certs is not None:
                        self._certs.read_certificate(server=self.options.purpose)
            finally:
                self._own = None
                if self._checking is not None:
                    # Given up in the middle of its handshake, the other end would outlive the server.
                    await asyncio.wait({self._checking})
                self._not_ready = f"{self.options.subject} not served any more"

    @asynccontextmanager
    async def listening(self, app: web.Application) -> AsyncIterator[tuple[str, int]]:
        """Serve while the block runs, with the certificate that there is; yields where we reach ourselves.

        Raises:
            AddressInUse: The address cannot be bound; the message names it, its purpose, and the remedy.
        """
        options = self.options
        connections = _Connections(self._clock, options.first_request_timeout)
        app.middlewares.insert(0, connections.middleware)
        if self._certs is None and is_loopback(parse_address(self._address)[0] or ""):
            app.middlewares.insert(1, _for_this_machine)
        app.on_response_prepare.append(self._close_if_draining)
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=http_log,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_TIMEOUT,
            **options.http,
        )
        await runner.setup()
        try:
            server = await self._bind(lambda: connections.accept(runner))
            try:
                yield _own_address(server.sockets[0])
            finally:
                server.close()
                # Only then the runner: it would read nothing more of a body that is on its way.
                unanswered = await connections.drain(SHUTDOWN_TIMEOUT)
                if unanswered:
                    log.warning("some requests are not answered any more", server=options.purpose, requests=unanswered)
        finally:
            await runner.cleanup()

    async def _close_if_draining(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._draining:
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp has decided on this header already

    async def _bind(self, accept: Callable[[], RequestHandler]) -> asyncio.Server:
        host, port = parse_address(self._address)
        tls: dict[str, Any] = {}
        if self._certs is not None:
            tls = {
                "ssl": self._certs.server_context(),
                "ssl_handshake_timeout": self.options.first_request_timeout,
            }
        try:
            return await asyncio.get_running_loop().create_server(accept, host, port, **tls)
        except OSError as error:
            raise AddressInUse(
                f"cannot serve {self.options.purpose} on {self._address}: {error.strerror or error}; "
                f"{self.options.remedy}"
            ) from error

    async def _wait_for_certificate(self, certs: CertWatcher) -> None:
        logged = None
        while not certs.read_certificate(server=self.options.purpose):
            if certs.error != logged:
                logged = certs.error
                self._not_ready = f"{self.options.subject} not served, for want of a certificate: {logged}"
                event = f"{self.options.subject} not served: there is no certificate"
                log.warning(
                    event,
                    error=logged,
                    hint="with certManagement.enable it comes as soon as somebody leads, otherwise mount a TLS Secret "
                    f"at webhook.certDir, or {self.options.without}; it goes on by itself",
                )
            await self._clock.sleep(FIRST_LOOK_INTERVAL)

    async def _dial_once(self, host: str, port: int) -> None:
        """Connect to ourselves, once for all who ask now or have asked a moment ago and would have done the same."""
        known = self._clock.monotonic() - self._checked_at < CHECKED_FOR
        while not known or self._checked != list(self._verifications()):
            if self._checking is None:
                self._checking = asyncio.create_task(self._check(host, port), name=f"dial {self.options.purpose}")
            await asyncio.shield(self._checking)
            known = True

    async def _check(self, host: str, port: int) -> None:
        checked = list(self._verifications())
        try:
            error = await self._dial(host, port)
            unreachable = self.options.unreachable.format(host=host, port=port)
            untrusted = await self._check_trust(host, port) if error is None else None
            self._not_ready = f"{unreachable}: {error}" if error else untrusted
            self._unreachable = error is not None
        finally:
            self._checked_at, self._checked = self._clock.monotonic(), checked
            self._checking = None

    async def _check_trust(self, host: str, port: int) -> str | None:
        """Connect to ourselves as callers do; returns why they would refuse our certificate."""
        for context, name in self._verifications():
            error = await self._dial(host, port, context, name)
            if error is not None:
                return f"{self.options.subject} served with a certificate that callers of {name} refuse: {error}"
        return None

    async def _dial(
        self, host: str, port: int, context: ssl.SSLContext | None = None, name: str | None = None
    ) -> str | None:
        if context is None and self._certs is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # whether others trust the certificate is up to them
        try:
            async with self._clock.timeout(DIAL_TIMEOUT):
                _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except (OSError, TimeoutError) as error:
            return str(error) or type(error).__name__
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return None


class _Connections:
    """The connections on which no request has come yet, and the requests that are being answered."""

    def __init__(self, clock: Clock, first_request_timeout: float | None) -> None:
        self._clock = clock
        self._first_request_timeout = first_request_timeout
        self._silent: set[RequestHandler] = set()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def accept(self, runner: web.AppRunner) -> RequestHandler:
        """Make a connection that is closed when its first request does not come; aiohttp would wait for ever."""
        if runner.server is None:
            raise RuntimeError("the runner was not set up")
        connection: RequestHandler = runner.server()
        if self._first_request_timeout is None:
            return connection
        self._silent.add(connection)

        def close_if_silent() -> None:
            if connection in self._silent and connection.transport is not None:
                connection.transport.close()
            self._silent.discard(connection)

        self._clock.call_at(self._clock.monotonic() + self._first_request_timeout, close_if_silent)
        return connection

    @property
    def middleware(self) -> Middleware:
        """What has to see every request first."""

        @web.middleware
        async def track(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._silent.discard(request.protocol)
            self._in_flight += 1
            self._idle.clear()
            try:
                return await handler(request)
            finally:
                self._in_flight -= 1
                if not self._in_flight:
                    self._idle.set()

        return track

    async def drain(self, seconds: float) -> int:
        """Wait until every request is answered, for so long at most; returns how many are not."""
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await self._idle.wait()
        return self._in_flight


def _bound(address: str, port: int) -> str:
    """Return the address of the configuration with the port that was bound, which differs for port 0."""
    return f"{address.rpartition(':')[0]}:{port}"


def _own_address(listening: socket.socket) -> tuple[str, int]:
    """Return where we reach ourselves by a socket that may listen everywhere."""
    host, port = listening.getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104 - how "everywhere" is written
