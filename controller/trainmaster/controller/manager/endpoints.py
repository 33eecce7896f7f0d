"""Probes and metrics: which checks there are, and where both are served, by every replica (M-3).

Probes are served before anything is checked that takes its time, and until everything else has stopped (M-1, M-2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from trainmaster.controller.configuration import OFF
from trainmaster.controller.debugging.handlers import Debugged, add_debugging_handlers
from trainmaster.controller.kube.leaderelection.election_thread import Election
from trainmaster.controller.kube.rest.resources import LEASES
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.parts import METRICS_SUFFIX, USER_AGENT, Parts, Setup
from trainmaster.controller.manager.process import cancel_and_wait
from trainmaster.controller.manager.training_operator import TrainingOperator
from trainmaster.controller.missing_rights import MissingRights
from trainmaster.controller.server.certwatcher import CertWatcher
from trainmaster.controller.server.filters import AddPages, DelegatingAuth
from trainmaster.controller.server.healthz import Healthz, metrics
from trainmaster.controller.server.server import Server, ServerOptions

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
    without="set metrics.secureServing to false",
    first_request_timeout=10.0,
)


def add_checks(healthz: Healthz, parts: Parts, *, stop: asyncio.Event) -> None:
    """Add the checks of the probes; `stop` is set when the manager was told to stop."""
    election, caches = parts.election, parts.caches
    missing_rights, certificates = parts.missing_rights, parts.certificates
    if election is not None:
        healthz.add_healthz_check("leaderElection", lambda: _leader_health(election))
    if parts.history is not None:
        healthz.add_readyz_check("history", lambda: None, note=parts.history.detail)
    healthz.add_readyz_check("shutdown", lambda: "the manager was told to stop" if stop.is_set() else None)
    healthz.add_readyz_check(
        "informer-sync", lambda: _sync_health([caches, parts.jobs]), note=lambda: _waited_for(caches)
    )
    healthz.add_readyz_check("rights", lambda: None, note=lambda: _lacks(missing_rights))
    if election is not None:
        healthz.add_readyz_check("leaderElection", lambda: _lease_health(missing_rights))
    if certificates is not None:
        healthz.add_readyz_check("ca-bundle", certificates.readiness)
        healthz.add_readyz_check("webhook-configurations", lambda: None, note=certificates.missing)
    for each in parts.servers:
        each.add_checks(healthz)


async def serve_probes(healthz: Healthz, setup: Setup, stack: AsyncExitStack) -> None:
    """Serve probes until the stack is closed."""
    address = setup.configuration.health.health_probe_bind_address
    if address != OFF:
        server = Server(address, PROBES_OPTIONS, clock=setup.clock)
        await stack.enter_async_context(server.listening(healthz.application()))


async def serve_metrics(
    parts: Parts, setup: Setup, debugged: Debugged, pages: Iterable[AddPages], stack: AsyncExitStack
) -> list[asyncio.Task[None]]:
    """Serve metrics, what is below `/debug/`, and more; returns the tasks that do so.

    Args:
        parts: Have what makes the client that asks who somebody is.
        debugged: What `/debug/` shows.
    """
    configuration, clock = setup.configuration, setup.clock
    settings = configuration.metrics
    if settings.bind_address == OFF:
        return []
    app = metrics()
    if configuration.enable_debugging_handlers:
        add_debugging_handlers(app, debugged)
    auth: DelegatingAuth | None = None
    if settings.auth.enabled:
        reviewer = parts.new_client(user_agent=USER_AGENT + METRICS_SUFFIX, guard=None, tries=1)
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
    healthy = election.elector.is_healthy()
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
