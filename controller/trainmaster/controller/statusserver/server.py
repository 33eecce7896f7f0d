"""The status server: the application that trainers reach, options of the plugin that tells pods of it, and a runnable.

Guarantees:
- It is served by HTTPS on every replica, leader or not, from the first good certificate on, which may be replaced at
  any time (H-10); the webhooks have the same.
- One path and one method are served; everything else is 404, and a body that says that it is too large is 413.
- Not more than so many requests are answered at once; those beyond are told to come again.
- Connections that send no request within ten seconds are closed, and idle ones after two minutes. Whoever speaks no TLS
  or no HTTP leaves no trace in the log.
- An unforeseen error is a response like any other (500), and a line in the log; what was sent is in neither.
- Its health is that a TLS connection to itself comes about, under the names of the original's probes.
- trainer S6: when the CA bundle changes, all TrainJobs are enqueued, those that run included. By then the certificate
  that came with it is served here: a pod that is told of an authority may report at once.
- It has a client of its own, with a rate limit of its own: reports never delay reconciles. That one has no guard, since
  every replica takes reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.missing_rights import MissingRights
from trainmaster.controller.operator_namespace import operator_namespace
from trainmaster.controller.server.certwatcher import REFRESH_INTERVAL, CertWatcher
from trainmaster.controller.server.healthz import Healthz
from trainmaster.controller.server.server import Server, ServerOptions
from trainmaster.controller.statusserver.authorizer import OwnerKinds
from trainmaster.controller.statusserver.ca_bundle import CABundle
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

PLUGIN: Final = "trainjobstatus"
"""The entry point of the other half of the feature, which tells pods about the server."""

USER_AGENT_SUFFIX: Final = "/trainer-status"

FIRST_REQUEST_TIMEOUT: Final = 10.0
IDLE_TIMEOUT: Final = 120.0
MAX_IN_FLIGHT: Final = 256

_LINGERING_TIME: Final = 1.0
"""Seconds in which the rest of a refused body may come, so that its sender gets to read the response."""

_LONGEST_PATH: Final = 300  # in logs

HTTP_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "keepalive_timeout": IDLE_TIMEOUT,
        "lingering_time": _LINGERING_TIME,
        "auto_decompress": False,  # reports are small; what is compressed is invalid, as it is for the original
    }
)
"""How the HTTP library is to serve the application."""


class StatusServer:
    """The server of the feature gate TrainJobStatus, and what belongs to it."""

    def __init__(self, configuration: Configuration, *, clock: Clock | None = None) -> None:
        self._settings = configuration.status_server
        self._configuration = configuration
        self._clock = clock or SystemClock()
        directory = Path(configuration.webhook.cert_dir)
        self._ca_bundle = CABundle(directory)
        self._ca_bundle.refresh()
        options = ServerOptions(
            purpose="trainer status",
            remedy="choose another statusServer.port in the configuration",
            subject="the status server is",
            unreachable="status server is not reachable at :{port}",
            without="switch the feature gate TrainJobStatus off",
            first_request_timeout=FIRST_REQUEST_TIMEOUT,
            http=HTTP_OPTIONS,
        )
        self._certs = CertWatcher(directory, configuration.tls)
        address = f"{self._settings.host or ''}:{self._settings.port}"
        self.http = Server(address, options, clock=self._clock, certs=self._certs)

    def plugin_options(self) -> dict[str, Mapping[str, Any]]:
        """Return the options of all plugins, with those of ours added to what the configuration file gives it."""
        return plugin_options(self._configuration, authority=self._ca_bundle.current)

    def add_checks(self, healthz: Healthz) -> None:
        """Add the checks, under the names of the original."""
        healthz.add_healthz_check("status-server-healthz", self.http.liveness)
        healthz.add_readyz_check("status-server-readyz", self.http.check)
        if not self._configuration.webhook.enabled:
            healthz.add_readyz_check("certificate", self.http.certificate)  # that of the webhooks otherwise

    async def run(
        self,
        access: RestConfig,
        trainjobs: Store,
        owners: OwnerKinds,
        *,
        user_agent: str,
        missing_rights: MissingRights | None = None,
        wait_for_sync: Callable[[], Awaitable[object]],
        enqueue_all: Callable[[], object],
    ) -> None:
        """Serve until cancelled.

        Args:
            owners: Whom pods may belong to.
            wait_for_sync: Waits until the caches are filled: until then nobody's TrainJob is known.

        Raises:
            AddressInUse: The address cannot be bound.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_ca_bundle(enqueue_all))
            await wait_for_sync()
            async with self._connect(access, user_agent, missing_rights) as client:
                await self.http.run(application(StatusHandler(client, trainjobs, owners, clock=self._clock)))

    async def _watch_ca_bundle(self, on_change: Callable[[], object]) -> None:
        while True:
            await self._clock.sleep(REFRESH_INTERVAL)
            if self._ca_bundle.refresh():
                # The server looks at its files at moments of its own.
                self._certs.read_certificate(server=self.http.options.purpose)
                on_change()

    def _connect(self, access: RestConfig, user_agent: str, missing_rights: MissingRights | None = None) -> KubeClient:
        limiter = None
        if self._settings.qps and self._settings.burst:
            limiter = RateLimiter(qps=self._settings.qps, burst=self._settings.burst, clock=self._clock)
        return KubeClient(
            access,
            user_agent=f"{user_agent}{USER_AGENT_SUFFIX}",
            limiter=limiter,
            missing_rights=missing_rights,
            clock=self._clock,
        )


def plugin_options(
    configuration: Configuration, *, authority: Callable[[], str | None]
) -> dict[str, Mapping[str, Any]]:
    """Return the options of all plugins, with those by which ours tells pods of the server.

    Args:
        configuration: The configuration file; what it says of our plugin wins.
        authority: Returns the certificates that pods are to trust.
    """
    service, given = configuration.cert_management.webhook_service_name, configuration.plugins.options
    url = f"https://{service}.{operator_namespace()}.svc:{configuration.status_server.port}"
    return {**given, PLUGIN: {"server": url, "authority": authority, **given.get(PLUGIN, {})}}


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
