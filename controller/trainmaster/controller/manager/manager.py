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
- L-12: whatever ends the manager, whether it ever led or not, ends every task, closes every connection and empties
  every queue.
- P-30: every task has an owner that waits for its end; P-31: nothing is waited for by `asyncio.wait_for`; P-32: no
  lock is held across a request, but for the renewal of credentials.

What waits for the caches and for the election, and stops before everything else, is in `runnables`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog

from trainmaster.controller.certificates.rights import manages_certificates
from trainmaster.controller.configuration import Configuration, seconds
from trainmaster.controller.debugging.handlers import Debugged
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.leaderelection.elector import new_identity
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.http1.transport import HttpTransport
from trainmaster.controller.kube.rest.missing_rights import MissingRights
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.retry import TRIES
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.clients import USER_AGENT, WEBHOOKS_SUFFIX, NewClient
from trainmaster.controller.manager.controllers import make_controllers
from trainmaster.controller.manager.election import lease_namespace, new_election, other_leaders
from trainmaster.controller.manager.endpoints import AddPages, add_checks, serve_metrics, serve_probes
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.runnables import (
    LeaderElectionRunnables,
    cancel_and_wait,
    drain,
    raise_if_ended,
    wait_for_first,
)
from trainmaster.controller.manager.training_operator import TrainingOperator
from trainmaster.controller.operator_namespace import operator_namespace
from trainmaster.controller.plugins.guard import PluginGuard
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.controller import require_unique_names
from trainmaster.controller.reconciling.trainjobs.job_metrics.observer import TrainJobObserver
from trainmaster.controller.server.healthz import Healthz
from trainmaster.controller.statusserver import OwnerKinds, StatusServer
from trainmaster.controller.webhooks import AdmissionHandlers, WebhookServer, Workers
from trainmaster.metrics.trainjobs import TrainJobsMetrics
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.listers import Watch

if TYPE_CHECKING:
    from trainmaster.controller.certificates.controller import CertificateController
    from trainmaster.controller.manager.history import ManagerHistory
    from trainmaster.controller.tracing.tracing import Tracing

log = structlog.get_logger(__name__)


class Manager:
    """Runs everything, once.

    Args:
        rest_config: The cluster.
        configuration: The configuration file.
        framework: The plugins.
        clock: The time.
        new_client: Makes clients; by default over HTTP, limited as the configuration says.
        elect_in_thread: Whether the election has a thread of its own; simulations keep everything on one loop.
        guard: The guard of the plugins that are not ours, if there are any; it ends with the manager.
        status_server: The server to which trainers report, where the feature is on.
        job_kinds: The kinds of jobs of `kubeflow.org/v1`, and others like them; none: they are switched off.
        on_caches_synced: Called once, when the caches have synced for the first time.
        tracing: Records what is done as traces; without it nothing is.
    """

    def __init__(
        self,
        rest_config: RestConfig,
        configuration: Configuration,
        framework: Framework,
        *,
        clock: Clock | None = None,
        new_client: NewClient | None = None,
        elect_in_thread: bool = True,
        guard: PluginGuard | None = None,
        status_server: StatusServer | None = None,
        job_kinds: Sequence[JobKind] = (),
        on_caches_synced: Callable[[], object] = lambda: None,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._rest_config = rest_config
        self._configuration = configuration
        self._framework = framework
        self._clock = clock or SystemClock()
        self._new_client = new_client or self._new_http_client
        self._elect_in_thread = elect_in_thread
        self._guard = guard
        self._status_server = status_server
        self._job_kinds = job_kinds
        self._on_caches_synced = on_caches_synced
        self._identity = new_identity()
        self._missing_rights: MissingRights | None = None
        self._ran = False
        health = configuration.health
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
        watches = self._framework.watches()
        missing_rights = self._missing_rights = MissingRights(self._policy_rules(watches))
        namespace = lease_namespace(self._configuration, self._rest_config)
        election = new_election(
            self._configuration,
            self._new_client,
            namespace=namespace,
            identity=self._identity,
            clock=self._clock,
            in_thread=self._elect_in_thread,
        )
        async with AsyncExitStack() as stack:
            guard = election.guard if election is not None else None
            client = await stack.enter_async_context(self._new_client(user_agent=USER_AGENT, guard=guard, tries=TRIES))
            caches = Caches(
                client,
                watches,
                namespaces=self._configuration.watch_namespaces,
                clock=self._clock,
            )
            recorder = EventRecorder(
                client,
                reporting_controller="trainer-trainjob-controller",
                reporting_instance=self._identity,
                clock=self._clock,
            )
            observer = TrainJobObserver(
                TrainJobsMetrics(),
                clock=self._clock,
                trace_id=self._tracing.trace_id if self._tracing is not None else lambda _uid: "",
            )
            stack.callback(observer.close)
            controllers = make_controllers(
                client=client,
                caches=caches,
                framework=self._framework,
                planner=(planner := _planner(stack)),
                plugin_threads=self._plugin_threads(stack),
                recorder=recorder,
                configuration=self._configuration,
                clock=self._clock,
                observer=observer,
                tracing=self._tracing,
            )
            jobs = TrainingOperator(
                client,
                self._job_kinds,
                recorder=recorder,
                configuration=self._configuration,
                clock=self._clock,
                tracing=self._tracing,
                planner=planner,
                on_served=caches.do_without_own,
            )
            stack.callback(jobs.close)
            controllers += jobs.controllers
            require_unique_names(controllers)
            for controller in controllers:
                # Also of one that never led: its keys would stay in the metrics of this process.
                stack.callback(controller.queue.shut_down)
            history = await self._history(caches, jobs, stack)
            certificates = self._certificates(client, recorder)
            webhooks = await self._webhooks(caches, certificates, stack)
            servers = [server for server in (webhooks, self._status_server) if server is not None]
            add_checks(
                self.healthz,
                stop=stop,
                caches=caches,
                jobs=jobs,
                election=election,
                missing_rights=missing_rights,
                certificates=certificates,
                servers=servers,
            )
            await serve_probes(self.healthz, stack, configuration=self._configuration, clock=self._clock)
            debugged = Debugged(
                configuration=self._configuration,
                framework=self._framework,
                informers=lambda: [*caches.informers(), *jobs.informers()],
                queues=[(controller.name, controller.queue) for controller in controllers],
                leader=lambda: election.state() if election is not None else {"leaderElection": False},
            )
            background = await serve_metrics(
                stack,
                debugged,
                self._pages(caches, jobs, history),
                configuration=self._configuration,
                new_client=self._new_client,
                clock=self._clock,
            )
            background += [
                asyncio.create_task(caches.run(), name="caches"),
                asyncio.create_task(recorder.run(), name="events"),
            ]
            if self._job_kinds:
                background.append(asyncio.create_task(jobs.run(), name="jobs"))
            if certificates is not None:
                background.append(asyncio.create_task(certificates.run(), name="certificates"))
            if webhooks is not None:
                background.append(asyncio.create_task(webhooks.run(caches.wait_for_sync), name="webhooks"))
            if self._status_server is not None:
                serving = self._status_server.run(
                    self._rest_config,
                    caches.trainjobs.store,
                    OwnerKinds.of(watches),
                    user_agent=USER_AGENT,
                    missing_rights=missing_rights,
                    wait_for_sync=caches.wait_for_sync,
                    enqueue_all=caches.enqueue_all,
                )
                background.append(asyncio.create_task(serving, name="status server"))
            stack.push_async_callback(cancel_and_wait, background)
            runnables = LeaderElectionRunnables(
                caches=caches,
                controllers=controllers,
                recorder=recorder,
                election=election,
                clock=self._clock,
                on_caches_synced=self._on_caches_synced,
                leading=[
                    *([certificates.lead] if certificates is not None else []),
                    *([history.lead] if history is not None else []),
                    *(each.run for each in other_leaders(self._configuration, client, namespace, self._clock)),
                ],
            )
            running = asyncio.create_task(runnables.run(stop), name="manager")
            draining = asyncio.create_task(
                drain(
                    stop,
                    servers,
                    delay=seconds(self._configuration.shutdown_delay_duration),
                    clock=self._clock,
                ),
                name="drain",
            )
            stack.push_async_callback(cancel_and_wait, [running, draining])
            for phase in (running, draining):
                await wait_for_first(phase, *background)
                for task in background:
                    raise_if_ended(task)
                phase.result()
        log.info("stopped")

    def _new_http_client(self, *, user_agent: str, guard: Callable[[], None] | None, tries: int) -> KubeClient:
        limits = self._configuration.client_connection
        limiter = None
        if limits.qps and limits.burst:
            limiter = RateLimiter(qps=limits.qps, burst=limits.burst, clock=self._clock)
        transport = None
        if self._tracing is not None:
            http = HttpTransport(self._rest_config, clock=self._clock)
            transport = self._tracing.transport(http, server=self._rest_config.server)
        return KubeClient(
            self._rest_config,
            user_agent=user_agent,
            guard=guard,
            tries=tries,
            limiter=limiter,
            missing_rights=self._missing_rights,
            clock=self._clock,
            transport=transport,
        )

    def _plugin_threads(self, stack: AsyncExitStack) -> PluginThreads | None:
        if self._guard is None:
            return None
        threads = PluginThreads("planner", skips=self._framework.skips)
        stack.callback(threads.close)
        return threads

    async def _history(self, caches: Caches, jobs: TrainingOperator, stack: AsyncExitStack) -> ManagerHistory | None:
        if not self._configuration.history.enabled:
            return None
        from trainmaster.controller.manager.history import ManagerHistory  # noqa: PLC0415 - seldom on, and has SQLite

        history = ManagerHistory(self._configuration, caches, jobs.job_informers(), clock=self._clock)
        history.start()
        stack.push_async_callback(history.close)
        self.healthz.add_readyz_check("history", lambda: None, note=history.detail)
        return history

    def _pages(self, caches: Caches, jobs: TrainingOperator, history: ManagerHistory | None) -> Iterator[AddPages]:
        if history is not None:
            yield history.add_handlers
        if self._configuration.web.enabled:
            from trainmaster.controller.manager.web_page import web_page  # noqa: PLC0415 - seldom on

            yield web_page(self._configuration, caches, jobs.job_informers(), history, clock=self._clock)

    def _certificates(self, client: KubeClient, recorder: EventRecorder) -> CertificateController | None:
        if not manages_certificates(self._configuration, status_server=self._status_server is not None):
            return None
        from trainmaster.controller.certificates.controller import CertificateController  # noqa: PLC0415 - see there

        return CertificateController(
            client, self._configuration, namespace=operator_namespace(), recorder=recorder, clock=self._clock
        )

    def _policy_rules(self, watches: Iterable[Watch]) -> list[PolicyRule]:
        return policy_rules(
            self._configuration,
            features={TRAIN_JOB_STATUS_GATE} if self._status_server is not None else (),
            watches=watches,
            job_kinds=self._job_kinds,
            namespace=operator_namespace(),
        )

    async def _webhooks(
        self, caches: Caches, certificates: CertificateController | None, stack: AsyncExitStack
    ) -> WebhookServer | None:
        settings = self._configuration.webhook
        if not settings.enabled:
            return None
        # A client of their own: whatever is sent to the webhooks, no reconcile waits for its connections or its limits.
        reader = self._new_client(user_agent=USER_AGENT + WEBHOOKS_SUFFIX, guard=None, tries=TRIES)
        await stack.enter_async_context(reader)
        workers = Workers(self._framework.skips if self._guard is not None else None)
        admission = AdmissionHandlers(
            self._framework,
            caches.stores(),
            reader,
            workloads=caches.workloads,
            job_kinds=self._job_kinds,
            namespaces=frozenset(self._configuration.watch_namespaces),
            workers=workers,
            clock=self._clock,
        )
        service = self._configuration.cert_management.webhook_service_name
        handlers, tracing = admission.handlers(), self._tracing
        return WebhookServer(
            handlers if tracing is None else tracing.handlers(handlers),
            workers,
            settings,
            self._configuration.tls,
            clock=self._clock,
            verifications=certificates.verifications if certificates is not None else tuple,
            now=certificates.now if certificates is not None else None,
            called=None if certificates is not None else f"{service}.{operator_namespace()}.svc",
            middlewares=() if tracing is None else (tracing.review_middleware(),),
        )


def _planner(stack: AsyncExitStack) -> ThreadPoolExecutor:
    """Make the thread in which large TrainJobs are planned; it ends with the manager."""
    planner = ThreadPoolExecutor(1, thread_name_prefix="planner")
    stack.callback(planner.shutdown, wait=False, cancel_futures=True)
    return planner
