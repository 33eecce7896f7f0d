"""The webhook server: one application of HTTPS for API servers, on every replica.

Guarantees:
- H-1: a body has at most 7 MiB and is JSON by its content type; what cannot be read is answered with a review, too.
- H-4: an error that nobody foresaw is a response with code 500 and the uid of the request, and is counted.
- H-13: every replica serves, leader or not; it is ready once a TLS connection to itself has come about.
- H-14: at the end no new connection is taken, and what has been requested is answered.
- H-15: an idle connection is closed after 90 s, one that sends no request after 32 s.
- Without a certificate the manager works all the same; it is not ready, says why, and goes on as soon as there is one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Never

import structlog
from aiohttp import web

from trainmaster.controller.configuration import Tls, Webhook
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.server.certwatcher import CertWatcher, server_context
from trainmaster.controller.server.server import Server, ServerOptions
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.controller.webhooks.review import InvalidReview, decode_request, encode_response, errored
from trainmaster.metrics.webhook import PANICS, WebhookMetrics

log = structlog.get_logger(__name__)

LARGEST_BODY: Final = 7 * 1024 * 1024
"""Two objects of 3 MiB, which is the most that the API server takes, and room for the rest."""

IDLE_TIMEOUT: Final = 90.0
REQUEST_TIMEOUT: Final = 32.0
"""Seconds for a handshake, for the first request to come, and for a body."""

DIAL_TIMEOUT: Final = 5.0
SHUTDOWN_TIMEOUT: Final = 1.5
"""Seconds in which requests are answered at the end; each takes milliseconds."""

_JSON: Final = "application/json"


class WebhookServer:
    """Serves webhooks.

    Args:
        handlers: What decides, by path.
        settings: Where to listen, and where the certificate is.
        tls: Which TLS to speak.
        clock: The time.
    """

    def __init__(self, handlers: Mapping[str, Handler], settings: Webhook, tls: Tls, *, clock: Clock) -> None:
        self._handlers = handlers
        self._clock = clock
        options = ServerOptions(
            purpose="webhooks",
            remedy="choose another webhook.port or webhook.host in the configuration",
            subject="the webhooks are",
            unreachable="the webhooks do not answer on {host}:{port}",
            started_event="admission webhooks are served",
            unanswered_event="some admission requests are not answered any more",
            no_certificate_event="admission webhooks are not served: there is no certificate",
            no_certificate_hint=(
                "mount a TLS Secret at webhook.certDir, or set webhook.enabled to false; it goes on by itself"
            ),
            first_request_timeout=REQUEST_TIMEOUT,
            dial_timeout=DIAL_TIMEOUT,
            shutdown_timeout=SHUTDOWN_TIMEOUT,
            http={"keepalive_timeout": IDLE_TIMEOUT},
        )
        certs = CertWatcher(
            Path(settings.cert_dir),
            lambda: server_context(min_version=tls.min_version, cipher_suites=tls.cipher_suites),
        )
        self._server = Server(f"{settings.host or ''}:{settings.port}", options, clock=clock, certs=certs)

    def readiness(self) -> str | None:
        """Say why the webhooks cannot be called; None if they can."""
        return self._server.readiness()

    async def run(self, wait_for_sync: Callable[[], Awaitable[object]]) -> Never:
        """Serve until cancelled.

        Args:
            wait_for_sync: Waits until the caches are filled: before nobody could decide.

        Raises:
            AddressInUse: The address cannot be bound.
        """
        await wait_for_sync()
        await self._server.run(application(self._handlers, clock=self._clock))


def application(handlers: Mapping[str, Handler], *, clock: Clock) -> web.Application:
    """Build the application: a path for each webhook."""
    app = web.Application(client_max_size=LARGEST_BODY)
    for path, handler in handlers.items():
        app.router.add_post(path, _route(handler, WebhookMetrics(path), clock))
    return app


def _route(handler: Handler, metrics: WebhookMetrics, clock: Clock) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(request: web.Request) -> web.Response:
        with metrics.measure():
            body = await _respond(request, handler, clock)
        metrics.count(200)
        return web.Response(body=body, content_type=_JSON)

    return respond


async def _respond(request: web.Request, handler: Handler, clock: Clock) -> bytes:
    """Answer one HTTP request; whatever it is, the answer is a review."""
    if request.headers.get("Content-Type") != _JSON:
        given = request.headers.get("Content-Type", "")
        return encode_response(errored(400, f"contentType={given}, expected {_JSON}"), uid="")
    try:
        async with clock.timeout(REQUEST_TIMEOUT):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return encode_response(errored(413, f"request entity is too large; limit is {LARGEST_BODY} bytes"), uid="")
    except TimeoutError:
        return encode_response(errored(408, f"the request did not arrive within {REQUEST_TIMEOUT:g} s"), uid="")
    return await review(body, handler, path=request.path)


async def review(body: bytes, handler: Handler, *, path: str) -> bytes:
    """Turn an AdmissionReview with a request into one with the response of a webhook."""
    if not body:
        return encode_response(errored(400, "request body is empty"), uid="")
    try:
        request = decode_request(body)
    except InvalidReview as error:
        return encode_response(errored(400, str(error)), uid=error.uid)
    try:
        response = await handler(request)
    except RecursionError:
        response = errored(400, "the object is nested too deeply")
    except Exception as error:
        PANICS.inc()
        log.exception("a webhook failed", webhook=path, uid=request.uid)
        response = errored(500, f"panic: {type(error).__name__} [recovered]; see the log of the manager")
    return encode_response(response, uid=request.uid, api_version=request.api_version, kind=request.kind)
