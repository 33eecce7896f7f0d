"""The webhook server: one application of HTTPS for API servers, on every replica.

Guarantees:
- H-1: a body has at most 7 MiB, is JSON by its content type, and is not unpacked; what cannot be read is answered
  with a review, too.
- H-4: an error that nobody foresaw is a response with code 500 and the uid of the request, and is counted.
- H-13: every replica serves, leader or not; it is ready once a TLS connection to itself has come about.
- H-14: at the end no new connection is taken, and what has been requested is answered.
- H-16: large requests are judged in a thread (`workers`). Who could not be answered in time is told at once to come
  again, by HTTP status 429 and `Retry-After`: API servers do so by themselves, within the time that they have, and
  their users notice a delay. What is not judged in time is a denial with code 429, which says when to try again.
- H-15: an idle connection is closed after 90 s, one that sends no request after 32 s.
- Without a certificate the manager works all the same; it is not ready, says why, and goes on as soon as there is one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Never

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.typedefs import Middleware

from trainmaster.controller.configuration import Tls, Webhook
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.server.certwatcher import CertWatcher
from trainmaster.controller.server.healthz import Healthz
from trainmaster.controller.server.server import Server, ServerOptions, Verifications
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.controller.webhooks.review import InvalidReview, decode_request, encode_response, errored, overloaded
from trainmaster.controller.webhooks.workers import LARGE, Overloaded, Workers
from trainmaster.metrics.webhook import PANICS, WebhookMetrics

log = structlog.get_logger(__name__)

LARGEST_BODY: Final = 7 * 1024 * 1024
"""Two objects of 3 MiB, which is the most that the API server takes, and room for the rest."""

IDLE_TIMEOUT: Final = 90.0
REQUEST_TIMEOUT: Final = 32.0
"""Seconds for a handshake, and for the first request to come."""

BODY_TIMEOUT: Final = 10.0
"""Seconds for a body; no API server waits longer for the answer."""

REVIEW_TIMEOUT: Final = 8.0
"""Seconds for the judgement, those included in which it waits for its turn; API servers wait for ten."""

RETRY_WHEN_FULL: Final = 1
RETRY_WHEN_LATE: Final = 5
"""Seconds after which to try again."""

HTTP_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "keepalive_timeout": IDLE_TIMEOUT,
        "auto_decompress": False,  # no API server packs, and what is packed may be a thousand times as large
    }
)
"""How the HTTP library is to serve the application."""

_JSON: Final = "application/json"
_FULL: Final = "too many admission requests at once; try again"


class WebhookServer:
    """Serves webhooks.

    Args:
        verifications: How API servers verify our certificate, where that is known.
        now: Returns the time that counts for it; by default that of the clock.
        called: The name by which API servers call us, if a certificate for another one is to be told of.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        workers: Workers,
        settings: Webhook,
        tls: Tls,
        *,
        clock: Clock,
        verifications: Verifications = tuple,
        now: Callable[[], datetime] | None = None,
        called: str | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._middlewares = middlewares
        self._handlers = handlers
        self._workers = workers
        self._clock = clock
        options = ServerOptions(
            purpose="webhooks",
            remedy="choose another webhook.port or webhook.host in the configuration",
            subject="the webhooks are",
            unreachable="the webhooks do not answer on {host}:{port}",
            without="set webhook.enabled to false",
            first_request_timeout=REQUEST_TIMEOUT,
            http=HTTP_OPTIONS,
        )
        certs = CertWatcher(Path(settings.cert_dir), tls, called=called)
        address = f"{settings.host or ''}:{settings.port}"
        self.http = Server(address, options, clock=clock, certs=certs, verifications=verifications, now=now)

    def add_checks(self, healthz: Healthz) -> None:
        """Add the checks of readiness: the webhooks answer by TLS (H-13), with a certificate that is valid now."""
        healthz.add_readyz_check("webhook", self.http.check)
        healthz.add_readyz_check("certificate", self.http.certificate)

    async def run(self, wait_for_sync: Callable[[], Awaitable[object]]) -> Never:
        """Serve until cancelled.

        Args:
            wait_for_sync: Waits until the caches are filled: before nobody could decide.

        Raises:
            AddressInUse: The address cannot be bound.
        """
        try:
            await wait_for_sync()
            app = application(self._handlers, workers=self._workers, clock=self._clock, middlewares=self._middlewares)
            await self.http.run(app)
        finally:
            self._workers.close()


def application(
    handlers: Mapping[str, Handler], *, workers: Workers, clock: Clock, middlewares: Sequence[Middleware] = ()
) -> web.Application:
    """Build the application: a path for each webhook."""
    app = web.Application(middlewares=middlewares)
    refused = RateLimiter(qps=0.1, burst=1, clock=clock)

    def route(path: str, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        metrics = WebhookMetrics(path)

        async def respond(request: web.Request) -> web.Response:
            with metrics.measure():
                try:
                    body = await _respond(request, handler, workers=workers, clock=clock)
                except InvalidReview as error:
                    body = encode_response(errored(error.code, str(error)), uid=error.uid)
                except Overloaded:
                    if not refused.try_accept():
                        log.warning("too many admission requests at once; API servers are told to try again", path=path)
                    metrics.count(429)
                    return web.Response(status=429, text=_FULL, headers={"Retry-After": str(RETRY_WHEN_FULL)})
            metrics.count(200)
            return web.Response(body=body, content_type=_JSON)

        return respond

    for path, handler in handlers.items():
        app.router.add_post(path, route(path, handler))
    return app


async def _respond(request: web.Request, handler: Handler, *, workers: Workers, clock: Clock) -> bytes:
    """Answer one HTTP request with a review.

    Raises:
        Overloaded: Too much is under way.
        InvalidReview: It has none.
    """
    if request.headers.get("Content-Type") != _JSON:
        given = request.headers.get("Content-Type", "")
        raise InvalidReview(f"contentType={given}, expected {_JSON}")
    if workers.of(request.content_length or 0).is_full:
        raise Overloaded
    with workers.body(request.remote) as take:
        try:
            async with clock.timeout(BODY_TIMEOUT):
                body = await _read(request, take)
        except TimeoutError:
            raise InvalidReview(f"the request did not arrive within {BODY_TIMEOUT:g} s", code=408) from None
        except (web.RequestPayloadError, BadHttpMessage) as error:
            raise InvalidReview(f"the request body cannot be read: {error}") from error
        if len(body) > LARGEST_BODY:
            raise InvalidReview(f"request entity is too large; limit is {LARGEST_BODY} bytes", code=413)
        return await review(body, handler, path=request.path, workers=workers, clock=clock)


async def _read(request: web.Request, take: Callable[[int], None]) -> bytes:
    """Read a body; of one that is too large at least as much as shows that it is."""
    parts, size = list[bytes](), 0
    async for part in request.content.iter_any():
        take(len(part))
        parts.append(part)
        size += len(part)
        if size > LARGEST_BODY:
            break
    return b"".join(parts)


async def review(body: bytes, handler: Handler, *, path: str, workers: Workers, clock: Clock) -> bytes:
    """Turn an AdmissionReview with a request into one with the response of a webhook.

    Raises:
        Overloaded: There was no time even to read it, or there will be none to judge it.
    """
    if not body:
        return encode_response(errored(400, "request body is empty"))
    request = None
    try:
        async with clock.timeout(REVIEW_TIMEOUT):
            if len(body) > LARGE:
                worker = workers.of(len(body))
                async with worker.turn(len(body)):
                    request = await worker.run(len(body), decode_request, body)
                    response = await handler(request)
            else:
                request = decode_request(body)
                response = await handler(request)
    except Overloaded:
        raise
    except InvalidReview as error:
        return encode_response(errored(error.code, str(error)), uid=error.uid)
    except RecursionError:
        response = errored(400, "the object is nested too deeply")
    except TimeoutError:
        if request is None:
            raise Overloaded from None
        response = overloaded(RETRY_WHEN_LATE)
        log.warning("an admission request was not judged in time", webhook=path, seconds=REVIEW_TIMEOUT)
    except Exception as error:
        PANICS.inc()
        log.exception("a webhook failed", webhook=path, uid=request.uid if request is not None else "")
        response = errored(500, f"panic: {type(error).__name__} [recovered]; see the log of the manager")
    if request is None:
        return encode_response(response)
    return encode_response(response, uid=request.uid, api_version=request.api_version)
