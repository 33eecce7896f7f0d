"""The life of the controller process: what starts and stops in which order, and what ends it.

Guarantees:
- M-1: start: probes and metrics, caches and events, then, once the caches have synced, election and controllers.
- M-2: stop: the controllers finish what they are at (K-6), events are flushed, the lease is released, caches and
  servers end last. The lease goes back as soon as nobody acts any more: the next leader need not wait for our servers.
- M-7: told to stop it is not ready from that moment on, and webhooks and status server answer for as long as it takes
  until nobody calls them (`shutdownDelayDuration`). A failure, or a lost lease, ends them at once.
- M-3, H-13: metrics and webhooks are served by every replica, leader or not; K-7, K-11: every series from the first
  scrape.
- M-4: a replica that waits for the lease keeps its caches and queues filled, so that a failover lists nothing. A queue
  holds each key once, so it grows no further than the number of objects.
- M-5: a runnable that ends, with or without an error, ends the process (`RunnableFailed`). A manager runs once.
- L-12: whatever ends the manager, whether it ever led or not, ends every task.
- P-30: every task has an owner that waits for its end; P-31: nothing is waited for by `asyncio.wait_for`; P-32: no
  lock is held across a request, but for the renewal of credentials.

What there is to start is made in `parts`. What waits for the caches and for the election, and stops before everything
else, is in `runnables`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import structlog

from trainmaster.controller.debugging.handlers import Debugged
from trainmaster.controller.manager.endpoints import add_checks, serve_metrics, serve_probes
from trainmaster.controller.manager.parts import USER_AGENT, Parts, Setup, make_parts
from trainmaster.controller.manager.process import cancel_and_wait, wait_for_first
from trainmaster.controller.manager.runnables import LeaderElectionRunnables, drain, raise_if_ended
from trainmaster.controller.server.filters import AddPages
from trainmaster.controller.server.healthz import Healthz
from trainmaster.controller.statusserver.authorizer import OwnerKinds
from trainmaster.runtime.api.meta import duration_seconds

log = structlog.get_logger(__name__)


class Manager:
    """Runs everything, once.

    Args:
        on_caches_synced: Called once, when the caches have synced for the first time.
    """

    def __init__(self, setup: Setup, *, on_caches_synced: Callable[[], object] = lambda: None) -> None:
        self._setup = setup
        self._on_caches_synced = on_caches_synced
        self._ran = False
        health = setup.configuration.health
        self.healthz = Healthz(liveness=health.liveness_endpoint_name, readiness=health.readiness_endpoint_name)
        """The checks of the probes; to be added to before the manager runs."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set.

        Raises:
            AddressInUse: A server cannot bind its address.
            LeaseLost: Another replica may lead now.
            RunnableFailed: Something else ended.
        """
        if self._ran:
            raise RuntimeError("a manager runs once; make another one")
        self._ran = True
        async with AsyncExitStack() as stack:
            parts = await make_parts(self._setup, stack)
            add_checks(self.healthz, parts, stop=stop)
            await serve_probes(self.healthz, self._setup, stack)
            background = await serve_metrics(parts, self._setup, self._debugged(parts), self._pages(parts), stack)
            background += self._start_background(parts)
            stack.push_async_callback(cancel_and_wait, background)
            controllers = self._start_controllers(parts, stop)
            draining = self._start_draining(parts, stop)
            stack.push_async_callback(cancel_and_wait, [controllers, draining])
            for phase in (controllers, draining):
                await wait_for_first(phase, *background)
                for task in background:
                    raise_if_ended(task)
                phase.result()
        log.info("stopped")

    def _start_background(self, parts: Parts) -> list[asyncio.Task[None]]:
        """Start what every replica runs, leader or not, until everything else has stopped."""
        setup, caches = self._setup, parts.caches
        running = {"caches": caches.run(), "events": parts.recorder.run()}
        if setup.job_kinds:
            running["jobs"] = parts.jobs.run()
        if parts.certificates is not None:
            running["certificates"] = parts.certificates.run()
        if parts.webhooks is not None:
            running["webhooks"] = parts.webhooks.run(caches.wait_for_sync)
        if parts.status_server is not None:
            running["status server"] = parts.status_server.run(
                setup.rest_config,
                caches.trainjobs.store,
                OwnerKinds.of(setup.framework.watches()),
                user_agent=USER_AGENT,
                missing_rights=parts.missing_rights,
                wait_for_sync=caches.wait_for_sync,
                enqueue_all=caches.enqueue_all,
            )
        return [asyncio.create_task(each, name=name) for name, each in running.items()]

    def _start_controllers(self, parts: Parts, stop: asyncio.Event) -> asyncio.Task[None]:
        """Start what waits for the caches and for the election, and ends when told to stop."""
        leading = [
            parts.lost_nodes.run,
            *([parts.certificates.lead] if parts.certificates is not None else []),
            *([parts.history.lead] if parts.history is not None else []),
            *([parts.other_leaders.run] if parts.other_leaders is not None else []),
        ]
        runnables = LeaderElectionRunnables(
            caches=parts.caches,
            controllers=parts.controllers,
            recorder=parts.recorder,
            election=parts.election,
            clock=self._setup.clock,
            on_caches_synced=self._on_caches_synced,
            leading=leading,
        )
        return asyncio.create_task(runnables.run(stop), name="manager")

    def _start_draining(self, parts: Parts, stop: asyncio.Event) -> asyncio.Task[None]:
        """Start what ends when told to stop and nobody calls our servers any more."""
        delay = duration_seconds(self._setup.configuration.shutdown_delay_duration)
        servers = [each.http for each in parts.servers]
        return asyncio.create_task(drain(stop, servers, delay=delay, clock=self._setup.clock), name="drain")

    def _debugged(self, parts: Parts) -> Debugged:
        election = parts.election
        return Debugged(
            configuration=self._setup.configuration,
            framework=self._setup.framework,
            informers=lambda: [*parts.caches.informers(), *parts.jobs.informers()],
            queues=[(controller.name, controller.queue) for controller in parts.controllers],
            leader=lambda: election.elector.state() if election is not None else {"leaderElection": False},
        )

    def _pages(self, parts: Parts) -> Iterator[AddPages]:
        """Return what is served beside the metrics."""
        if parts.history is not None:
            yield parts.history.add_handlers
        configuration = self._setup.configuration
        if configuration.web.enabled:
            from trainmaster.controller.manager.pages import web_page  # noqa: PLC0415 - seldom on

            yield web_page(
                configuration, parts.caches, parts.jobs.job_informers(), parts.history, clock=self._setup.clock
            )
