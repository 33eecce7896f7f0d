"""Serving: HTTPS for the API server, from the first good certificate until the end of the manager.

Guarantees:
- H-1: a body has at most 7 MiB and is JSON by its content type; what cannot be read is answered with a review, too.
- H-4: an error that nobody foresaw is an answer with code 500 and the uid of the question, and is counted.
- H-13: every replica serves, leader or not; it is ready once a TLS connection to itself has come about.
- H-14: at the end no new connection is taken, and what has been asked is answered.
- H-15: an idle connection is closed after 90 s, one that sends no request after 32 s.
- Without a certificate the manager works all the same; it is not ready, says why, and goes on as soon as there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from trainmaster.controller.configuration import Tls, Webhook
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.server.certificates import Certificates
from trainmaster.controller.server.tls import server_context
from trainmaster.controller.server.tls_server import FirstRequests, certified, keep_looking, listening, own_address
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.controller.webhooks.review import Answer, Unreadable, failed, read_question, write_answer
from trainmaster.metrics.webhook import PANICS, WebhookMetrics

log = structlog.get_logger(__name__)

LARGEST_BODY: Final = 7 * 1024 * 1024
"""Two objects of 3 MiB, which is the most that the API server takes, and room for the rest."""

IDLE_TIMEOUT: Final = 90.0
REQUEST_TIMEOUT: Final = 32.0
"""Seconds for a handshake, for the first request to come, and for a body."""

DIAL_TIMEOUT: Final = 5.0
FINISH_TIMEOUT: Final = 1.5
"""Seconds in which questions are answered at the end; each takes milliseconds."""

_JSON: Final = "application/json"


class WebhookServer:
    """Serves webhooks.

    Args:
        handlers: What answers, by path.
        settings: Where to listen, and where the certificate is.
        tls: Which TLS to speak.
        clock: The time.
    """

    def __init__(self, handlers: Mapping[str, Handler], settings: Webhook, tls: Tls, *, clock: Clock) -> None:
        self._handlers = handlers
        self._settings = settings
        self._certificates = Certificates(Path(settings.cert_dir), lambda: server_context(tls))
        self._clock = clock
        self._objection: str | None = "the webhooks are not served yet"

    def objection(self) -> str | None:
        """Say why the webhooks cannot be asked; None if they can."""
        return self._objection

    async def run(self, wait_filled: Callable[[], Awaitable[object]]) -> None:
        """Serve until cancelled.

        Args:
            wait_filled: Waits until the caches are filled: before nobody could answer.

        Raises:
            AddressInUse: The address cannot be bound.
        """
        await wait_filled()
        await certified(self._certificates, clock=self._clock, complain=self._uncertified)
        app = web.Application(client_max_size=LARGEST_BODY)
        traffic = _Traffic(self._clock)
        first_requests = FirstRequests(self._clock, within=REQUEST_TIMEOUT)
        for path, handler in self._handlers.items():
            app.router.add_post(path, _route(handler, WebhookMetrics(path), self._clock, traffic, first_requests))
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=FINISH_TIMEOUT,
            keepalive_timeout=IDLE_TIMEOUT,
        )
        async with listening(
            runner,
            first_requests,
            self._certificates,
            host=self._settings.host or None,
            port=self._settings.port,
            purpose="webhooks",
            remedy="choose another webhook.port or webhook.host in the configuration",
        ) as server:
            host, port = address = own_address(server.sockets[0])
            log.info("admission webhooks are served", address=f"{host}:{port}")

            def report(trouble: str | None) -> None:
                self._objection = trouble and f"the webhooks do not answer on {host}:{port}: {trouble}"

            try:
                await keep_looking(address, self._certificates, clock=self._clock, within=DIAL_TIMEOUT, report=report)
            finally:
                self._objection = "the webhooks are not served any more"
                server.close()
                # Only then the runner: it would read nothing more of a body that is on its way.
                await traffic.finish()

    def _uncertified(self, trouble: str) -> None:
        self._objection = f"the webhooks are not served, for want of a certificate: {trouble}"
        log.warning(
            "admission webhooks are not served: there is no certificate",
            error=trouble,
            hint="mount a TLS Secret at webhook.certDir, or set webhook.enabled to false; it goes on by itself",
        )


def _route(
    handler: Handler, metrics: WebhookMetrics, clock: Clock, traffic: _Traffic, first_requests: FirstRequests
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(request: web.Request) -> web.Response:
        first_requests.came(request)
        with traffic.answering(), metrics.answering():
            body = await _review(request, handler, clock)
        metrics.answered(200)
        return web.Response(body=body, content_type=_JSON)

    return respond


async def _review(request: web.Request, handler: Handler, clock: Clock) -> bytes:
    """Answer one request; whatever it is, the answer is a review."""
    if request.headers.get("Content-Type") != _JSON:
        given = request.headers.get("Content-Type", "")
        return write_answer(failed(400, f"contentType={given}, expected {_JSON}"), uid="")
    try:
        async with clock.timeout(REQUEST_TIMEOUT):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return write_answer(failed(413, f"request entity is too large; limit is {LARGEST_BODY} bytes"), uid="")
    except TimeoutError:
        return write_answer(failed(408, f"the request did not arrive within {REQUEST_TIMEOUT:g} s"), uid="")
    return await answer_to(body, handler, path=request.path)


async def answer_to(body: bytes, handler: Handler, *, path: str) -> bytes:
    """Answer the body of a request."""
    if not body:
        return write_answer(failed(400, "request body is empty"), uid="")
    try:
        question = read_question(body)
    except Unreadable as error:
        return write_answer(failed(400, str(error)), uid=error.uid)
    answer: Answer
    try:
        answer = await handler(question)
    except RecursionError:
        answer = failed(400, "the object is nested too deeply")
    except Exception as error:
        PANICS.inc()
        log.exception("a webhook failed", webhook=path, uid=question.uid)
        answer = failed(500, f"panic: {type(error).__name__} [recovered]; see the log of the manager")
    return write_answer(answer, uid=question.uid, api_version=question.api_version, kind=question.kind)


class _Traffic:
    """What is being asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answering = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Note that a request is being answered during the block."""
        self._answering += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._answering -= 1
            if not self._answering:
                self._idle.set()

    async def finish(self) -> None:
        """Wait until everything that has been asked is answered, within limits."""
        try:
            async with self._clock.timeout(FINISH_TIMEOUT):
                await self._idle.wait()
        except TimeoutError:
            log.warning("some admission requests are not answered any more", requests=self._answering)
