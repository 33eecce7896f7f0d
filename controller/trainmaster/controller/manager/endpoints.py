"""Probes and metrics: which checks there are, and where both are served, by every replica (M-3).

Probes are served before anything is checked that takes its time, and until everything else has stopped (M-1, M-2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import web

from trainmaster.controller.configuration import OFF, Configuration
from trainmaster.controller.debugging.handlers import Debugged, add_debugging_handlers
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.leaderelection.election_thread import Election
from trainmaster.controller.kube.rest.missing_rights import MissingRights
from trainmaster.controller.kube.rest.resources import LEASES
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.clients import METRICS_SUFFIX, USER_AGENT, NewClient
from trainmaster.controller.manager.runnables import cancel_and_wait
from trainmaster.controller.manager.training_operator import TrainingOperator
from trainmaster.controller.server.certwatcher import CertWatcher
from trainmaster.controller.server.filters import DelegatingAuth
from trainmaster.controller.server.healthz import Healthz, metrics
from trainmaster.controller.server.server import Server, ServerOptions
from trainmaster.controller.statusserver import StatusServer
from trainmaster.controller.webhooks import WebhookServer

if TYPE_CHECKING:
    from trainmaster.controller.certificates.controller import CertificateController

PROBES_OPTIONS: Final = ServerOptions(
    purpose="probes",
    remedy="choose another health.healthProbeBindAddress in the configuration",
    first_request_timeout=10.0,
)

METRICS_OPTIONS: Final = ServerOptions(
    purpose="metrics",
    remedy="choose another metrics.bindAddress in the configuration",
    subject="metrics are",
    unreachable="metrics cannot be read on {host}:{port}",
    started_event="metrics are served",
    unanswered_event="some requests for metrics are not answered any more",
    no_certificate_event="metrics are not served: there is no certificate",
    without="set metrics.secureServing to false",
    first_request_timeout=10.0,
)


AddPages: TypeAlias = Callable[[web.Application, DelegatingAuth | None], None]
"""Adds pages to the application of the metrics server, behind its authentication if there is one."""


def add_checks(
    healthz: Healthz,
    *,
    stop: asyncio.Event,
    caches: Caches,
    jobs: TrainingOperator,
    election: Election | None,
    missing_rights: MissingRights,
    certificates: CertificateController | None,
    servers: Iterable[WebhookServer | StatusServer],
) -> None:
    """Add the checks of the probes.

    Args:
        healthz: Where they are added.
        stop: Set when the manager was told to stop.
        caches: What has to be filled.
        jobs: The same of jobs of `kubeflow.org/v1`.
        election: The election, if there is one.
        missing_rights: What the service account may not do.
        certificates: Who makes the certificates, if that is for us.
        servers: Those that have to answer.
    """
    if election is not None:
        healthz.add_healthz_check("leaderElection", lambda: _leader_health(election))
    healthz.add_readyz_check("shutdown", lambda: "the manager was told to stop" if stop.is_set() else None)
    healthz.add_readyz_check("informer-sync", lambda: _sync_health([caches, jobs]), note=lambda: _waited_for(caches))
    healthz.add_readyz_check("rights", lambda: None, note=lambda: _lacks(missing_rights))
    if election is not None:
        healthz.add_readyz_check("leaderElection", lambda: _lease_health(missing_rights))
    if certificates is not None:
        healthz.add_readyz_check("ca-bundle", certificates.readiness)
        healthz.add_readyz_check("webhook-configurations", lambda: None, note=certificates.missing)
    for each in servers:
        each.add_checks(healthz)


async def serve_probes(healthz: Healthz, stack: AsyncExitStack, *, configuration: Configuration, clock: Clock) -> None:
    """Serve probes until the stack is closed."""
    address = configuration.health.health_probe_bind_address
    if address != OFF:
        server = Server(address, PROBES_OPTIONS, clock=clock)
        await stack.enter_async_context(server.listening(healthz.application()))


async def serve_metrics(
    stack: AsyncExitStack,
    debugged: Debugged,
    pages: Iterable[AddPages],
    *,
    configuration: Configuration,
    new_client: NewClient,
    clock: Clock,
) -> list[asyncio.Task[None]]:
    """Serve metrics, what is below `/debug/`, and more; returns the tasks that do so.

    Args:
        stack: They are served until it is closed.
        debugged: What `/debug/` shows.
        pages: What else is served.
        configuration: Where, and to whom.
        new_client: Makes the client that asks who somebody is.
        clock: The time.
    """
    settings = configuration.metrics
    if settings.bind_address == OFF:
        return []
    app = metrics()
    if configuration.enable_debugging_handlers:
        add_debugging_handlers(app, debugged)
    auth: DelegatingAuth | None = None
    if settings.auth.enabled:
        # A client of their own: whoever reads metrics, no reconcile waits for its connections or its limits.
        reviewer = new_client(user_agent=USER_AGENT + METRICS_SUFFIX, guard=None, tries=1)
        await stack.enter_async_context(reviewer)
        auth = DelegatingAuth(reviewer, clock=clock)
        app.middlewares.append(auth.middleware)
    for add_pages in pages:
        add_pages(app, auth)
    if not settings.secure_serving:
        server = Server(settings.bind_address, METRICS_OPTIONS, clock=clock)
        await stack.enter_async_context(server.listening(app))
        return []
    certs = CertWatcher(Path(configuration.webhook.cert_dir), configuration.tls)
    server = Server(settings.bind_address, METRICS_OPTIONS, clock=clock, certs=certs)
    serving = asyncio.create_task(server.run(app), name="metrics")
    stack.push_async_callback(cancel_and_wait, [serving])
    return [serving]


def _leader_health(election: Election) -> str | None:
    healthy = election.is_healthy()
    return None if healthy else "this leader has not renewed its lease for longer than the lease lasts"


def _lacks(missing_rights: MissingRights) -> str | None:
    """Name the rights that are missing, which keep nobody but those who need them from being served."""
    missing = missing_rights.summary()
    return f"the service account may not {', '.join(missing)}; the log says what needs it" if missing else None


def _lease_health(missing_rights: MissingRights) -> str | None:
    """Say why this replica could not lead if it had to."""
    missing = missing_rights.of(LEASES, ("get", "create", "update"))
    return f"the service account may not {', '.join(missing)}" if missing else None


def _sync_health(caches: Sequence[Caches | TrainingOperator]) -> str | None:
    missing = [each for some in caches for each in some.not_synced()]
    return f"waiting for {'; '.join(missing)}" if missing else None


def _waited_for(caches: Caches) -> str | None:
    """Say which kinds only some TrainJobs wait for."""
    waited_for = caches.waited_for()
    return f"waiting for {'; '.join(waited_for)}" if waited_for else None
