"""The application that trainers reach: one path, one method, and limits.

Guarantees:
- One path and one method are served; everything else is 404, and a body that says that it is too large is 413.
- Not more than so many requests are answered at once; those beyond are told to come again.
- Whoever sends no HTTP leaves no trace in the log.
- An unforeseen error is a response like any other (500), and a line in the log; what was sent is in neither.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.typedefs import Handler

from trainmaster.controller.statusserver.handler import (
    LARGEST_BODY,
    NOT_FOUND,
    RETRY_WHEN_BUSY,
    TOO_LARGE,
    UNFORESEEN,
    StatusHandler,
    encode,
    too_many_requests,
)
from trainmaster.metrics import statusserver as metrics
from trainmaster.runtime.api.constants import status_path

log = structlog.get_logger(__name__)

IDLE_TIMEOUT: Final = 120.0
MAX_IN_FLIGHT: Final = 256

_LINGERING_TIME: Final = 1.0
"""Seconds in which the rest of a refused body may come, so that its sender gets to read the response."""

_LONGEST_PATH: Final = 300  # in logs

_THEIR_FAULT: Final = (BadHttpMessage, ConnectionError)

# What the HTTP library has to say about requests that are none is the business of who sent them.
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], _THEIR_FAULT)))

HTTP_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "logger": _http_log,
        "keepalive_timeout": IDLE_TIMEOUT,
        "lingering_time": _LINGERING_TIME,
        "auto_decompress": False,  # reports are small; what is compressed is invalid, as it is for the original
    }
)
"""How the HTTP library is to serve the application."""


def application(reports: StatusHandler) -> web.Application:
    """Build the application."""
    in_flight = 0

    async def post(request: web.Request) -> web.StreamResponse:
        return encode(await reports.handle(request))

    async def within_limits(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (request.content_length or 0) > LARGEST_BODY:
            return encode(TOO_LARGE)
        if in_flight > MAX_IN_FLIGHT:
            return encode(too_many_requests(RETRY_WHEN_BUSY))
        return await handler(request)

    @web.middleware
    async def respond(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal in_flight
        started = perf_counter()
        in_flight += 1
        try:
            with metrics.IN_FLIGHT.track_inprogress():
                response = await within_limits(request, handler)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
            response = encode(NOT_FOUND)
        except Exception:
            log.exception("a report could not be answered", path=request.path[:_LONGEST_PATH])
            response = encode(UNFORESEEN)
        finally:
            in_flight -= 1
        metrics.observe(response.status, perf_counter() - started)
        log.debug("answered", method=request.method, path=request.path[:_LONGEST_PATH], code=response.status)
        return response

    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[respond])
    app.router.add_post(status_path("{namespace}", "{name}"), post)
    return app
