"""Serving: HTTPS for trainers, on every replica, leader or not.

Guarantees:
- One path and one method are served; everything else is 404, and a body that says that it is too large is 413.
- It is served from the first good certificate on, which may be replaced at any time (H-10); the webhooks have the same.
- Connections that send no request within ten seconds are closed, and idle ones after two minutes. Not more than so many
  requests are answered at once; those beyond are told to come again.
- Whoever sends no HTTP, or no TLS, leaves no trace in the log.
- Its health is that a TLS connection to itself comes about, under the names of the original's probes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.server.certificates import Certificates
from trainmaster.controller.server.tls_server import FirstRequests, certified, keep_looking, listening, own_address
from trainmaster.controller.statusserver.handler import (
    BUSY_FOR,
    LARGEST_BODY,
    NOT_FOUND,
    TOO_LARGE,
    UNFORESEEN,
    Reports,
    encoded,
    too_many,
)
from trainmaster.metrics import statusserver as metrics
from trainmaster.runtime.api.constants import status_path

log = structlog.get_logger(__name__)

FIRST_REQUEST_TIMEOUT: Final = 10.0
IDLE_TIMEOUT: Final = 120.0
FINISH_TIMEOUT: Final = 1.5
"""Seconds in which requests are answered at the end, of the two that the manager has for its servers."""

MOST_AT_ONCE: Final = 256
DIAL_TIMEOUT: Final = 10.0

_LINGER: Final = 1.0
"""Seconds in which the rest of a refused body may come, so that its sender gets to read the answer."""

_LONGEST_PATH: Final = 300  # in logs

_THEIR_FAULT: Final = (BadHttpMessage, ConnectionError)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# What the HTTP library has to say about requests that are none is the business of who sent them.
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], _THEIR_FAULT)))

HTTP_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "access_log": None,
        "logger": _http_log,
        "keepalive_timeout": IDLE_TIMEOUT,
        "lingering_time": _LINGER,
        "auto_decompress": False,  # reports are small; what is compressed is invalid, as it is for the original
    }
)
"""How the HTTP library is to serve the application."""


class StatusServer:
    """Listens, and knows whether it is well.

    Args:
        port: Where to listen, on all interfaces.
        certificates: What to show.
        clock: The time.
    """

    def __init__(self, port: int, certificates: Certificates, *, clock: Clock) -> None:
        self._port = port
        self._certificates = certificates
        self._clock = clock
        self._objection: str | None = "the status server is not served yet"
        self._unreachable = False

    def objection(self) -> str | None:
        """Say why reports cannot be taken; None if they can."""
        return self._objection

    def ailment(self) -> str | None:
        """Say why only another process would help: what was served cannot be reached any more."""
        return self._objection if self._unreachable else None

    async def run(self, reports: Reports) -> None:
        """Serve until cancelled.

        Raises:
            AddressInUse: The address cannot be bound.
        """
        await certified(self._certificates, clock=self._clock, complain=self._uncertified)
        first_requests = FirstRequests(self._clock, within=FIRST_REQUEST_TIMEOUT)
        runner = web.AppRunner(
            application(reports, first_requests), handle_signals=False, shutdown_timeout=FINISH_TIMEOUT, **HTTP_OPTIONS
        )
        async with listening(
            runner,
            first_requests,
            self._certificates,
            host=None,
            port=self._port,
            purpose="progress",
            remedy="choose another statusServer.port in the configuration",
        ) as server:
            address = own_address(server.sockets[0])
            log.info("progress of trainers is taken", port=self._port)

            def report(trouble: str | None) -> None:
                self._objection = trouble and f"status server is not reachable at :{address[1]}: {trouble}"
                self._unreachable = trouble is not None

            try:
                await keep_looking(address, self._certificates, clock=self._clock, within=DIAL_TIMEOUT, report=report)
            finally:
                self._objection = "the status server is not served any more"

    def _uncertified(self, trouble: str) -> None:
        self._objection = f"the status server is not served, for want of a certificate: {trouble}"
        log.warning(
            "the status server is not served: there is no certificate",
            error=trouble,
            hint="mount a TLS Secret at webhook.certDir, or switch the feature gate TrainJobStatus off",
        )


def application(reports: Reports, first_requests: FirstRequests) -> web.Application:
    """Build the application; `first_requests` is told of every request."""
    at_once = 0

    async def post(request: web.Request) -> web.StreamResponse:
        return encoded(await reports.answer(request))

    async def within_limits(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if (request.content_length or 0) > LARGEST_BODY:
            return encoded(TOO_LARGE)
        if at_once > MOST_AT_ONCE:
            return encoded(too_many(BUSY_FOR))
        return await handler(request)

    @web.middleware
    async def answer_anyway(request: web.Request, handler: _Handler) -> web.StreamResponse:
        nonlocal at_once
        first_requests.came(request)
        started = perf_counter()
        at_once += 1
        try:
            with metrics.IN_FLIGHT.track_inprogress():
                response = await within_limits(request, handler)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
            response = encoded(NOT_FOUND)
        except Exception:
            log.exception("a report could not be answered", path=request.path[:_LONGEST_PATH])
            response = encoded(UNFORESEEN)
        finally:
            at_once -= 1
        metrics.answered(response.status, perf_counter() - started)
        log.debug("answered", method=request.method, path=request.path[:_LONGEST_PATH], code=response.status)
        return response

    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[answer_anyway])
    app.router.add_post(status_path("{namespace}", "{name}"), post)
    return app
