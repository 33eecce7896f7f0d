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
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Protocol

import structlog

from trainmaster.controller.certificates.controller import CertificateController, manages_certificates
from trainmaster.controller.configuration import OFF, Configuration, seconds
from trainmaster.controller.debugging.handlers import Debugged, add_debugging_handlers
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.leaderelection.election_thread import (
    USER_AGENT_SUFFIX,
    Election,
    ElectionInThread,
    ElectionOnLoop,
)
from trainmaster.controller.kube.leaderelection.elector import LeaderElector, new_identity
from trainmaster.controller.kube.leaderelection.lease import LeaseClient
from trainmaster.controller.kube.leaderelection.other_leaders import OtherLeaders
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.missing_rights import MissingRights
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.resources import LEASES
from trainmaster.controller.kube.rest.retry import TRIES
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.controllers import make_controllers
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.runnables import (
    LeaderElectionRunnables,
    cancel_and_wait,
    drain,
    raise_if_ended,
    wait_for_first,
)
from trainmaster.controller.manager.training_operator import TrainingOperator
from trainmaster.controller.operator_namespace import operator_namespace, pod_namespace
from trainmaster.controller.reconciling.controller import require_unique_names
from trainmaster.controller.server.certwatcher import CertWatcher, server_context
from trainmaster.controller.server.filters import DelegatingAuth
from trainmaster.controller.server.healthz import Healthz, metrics
from trainmaster.controller.server.server import Server, ServerOptions
from trainmaster.controller.statusserver import StatusServer
from trainmaster.controller.webhooks import AdmissionHandlers, WebhookServer, Workers
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.version import __version__

log = structlog.get_logger(__name__)

USER_AGENT: Final = f"trainmaster/{__version__}"
WEBHOOKS_SUFFIX: Final = "/webhooks"
METRICS_SUFFIX: Final = "/metrics"

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
    no_certificate_hint=(
        "with certManagement.enable it comes as soon as somebody leads, otherwise mount a TLS Secret at "
        "webhook.certDir, or set metrics.secureServing to false; it goes on by itself"
    ),
    first_request_timeout=10.0,
)


class NewClient(Protocol):
    """Makes clients of the cluster."""

    def __call__(self, *, user_agent: str, guard: Callable[[], None] | None, tries: int) -> KubeClient:
        """Make a client that calls `guard` before each write and sends a request up to `tries` times."""


class Manager:
    """Runs everything, once.

    Args:
        rest_config: The cluster.
        configuration: The configuration file.
        framework: The plugins.
        clock: The time.
        new_client: Makes clients; by default over HTTP, limited as the configuration says.
        elect_in_thread: Whether the election has a thread of its own; simulations keep everything on one loop.
        status_server: The server to which trainers report, where the feature is on.
        job_kinds: The kinds of jobs of `kubeflow.org/v1`, and others like them; none: they are switched off.
        on_caches_synced: Called once, when the caches have synced for the first time.
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
        status_server: StatusServer | None = None,
        job_kinds: Sequence[JobKind] = (),
        on_caches_synced: Callable[[], object] = lambda: None,
    ) -> None:
        self._rest_config = rest_config
        self._configuration = configuration
        self._framework = framework
        self._clock = clock or SystemClock()
        self._new_client = new_client or self._new_http_client
        self._elect_in_thread = elect_in_thread
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
        self._missing_rights = MissingRights(self._policy_rules(watches))
        election = self._election()
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
            controllers = make_controllers(
                client=client,
                caches=caches,
                framework=self._framework,
                recorder=recorder,
                configuration=self._configuration,
                clock=self._clock,
            )
            jobs = TrainingOperator(
                client, self._job_kinds, recorder=recorder, configuration=self._configuration, clock=self._clock
            )
            controllers += jobs.controllers
            require_unique_names(controllers)
            for controller in controllers:
                # Also of one that never led: its keys would stay in the metrics of this process.
                stack.callback(controller.queue.shut_down)
            certificates = self._certificates(client, recorder)
            if certificates is not None:
                self.healthz.add_readyz_check("ca-bundle", certificates.readiness)
            webhooks = await self._webhooks(caches, certificates, stack)
            await self._serve_probes(stack, [caches, jobs], election, webhooks, stop)
            debugged = Debugged(
                configuration=self._configuration,
                framework=self._framework,
                informers=lambda: [*caches.informers(), *jobs.informers()],
                queues=[(controller.name, controller.queue) for controller in controllers],
                leader=lambda: election.state() if election is not None else {"leaderElection": False},
            )
            background = await self._serve_metrics(stack, debugged)
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
                    user_agent=USER_AGENT,
                    missing_rights=self._missing_rights,
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
                    *(each.run for each in self._other_leaders(client)),
                ],
            )
            running = asyncio.create_task(runnables.run(stop), name="manager")
            draining = asyncio.create_task(
                drain(
                    stop,
                    [server for server in (webhooks, self._status_server) if server is not None],
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

    async def _serve_probes(
        self,
        stack: AsyncExitStack,
        caches: Sequence[Caches | TrainingOperator],
        election: Election | None,
        webhooks: WebhookServer | None,
        stop: asyncio.Event,
    ) -> None:
        """Serve probes until the stack is closed."""
        if election is not None:
            self.healthz.add_healthz_check("leaderElection", lambda: _leader_health(election))
        self.healthz.add_readyz_check("shutdown", lambda: "the manager was told to stop" if stop.is_set() else None)
        self.healthz.add_readyz_check("informer-sync", lambda: _sync_health(caches))
        if election is not None:
            self.healthz.add_readyz_check("leaderElection", self._lease_health)
        for each in (webhooks, self._status_server):
            if each is not None:
                each.add_checks(self.healthz)
        health = self._configuration.health
        if health.health_probe_bind_address != OFF:
            server = Server(health.health_probe_bind_address, PROBES_OPTIONS, clock=self._clock)
            await stack.enter_async_context(server.listening(self.healthz.application()))

    async def _serve_metrics(self, stack: AsyncExitStack, debugged: Debugged) -> list[asyncio.Task[None]]:
        """Serve metrics, and what is below `/debug/`, until the stack is closed; returns the tasks that do so."""
        settings, tls = self._configuration.metrics, self._configuration.tls
        if settings.bind_address == OFF:
            return []
        app = metrics()
        if self._configuration.enable_debugging_handlers:
            add_debugging_handlers(app, debugged)
        if settings.auth.enabled:
            # A client of their own: whoever reads metrics, no reconcile waits for its connections or its limits.
            reviewer = self._new_client(user_agent=USER_AGENT + METRICS_SUFFIX, guard=None, tries=1)
            await stack.enter_async_context(reviewer)
            app.middlewares.append(DelegatingAuth(reviewer, clock=self._clock).middleware)
        if not settings.secure_serving:
            server = Server(settings.bind_address, METRICS_OPTIONS, clock=self._clock)
            await stack.enter_async_context(server.listening(app))
            return []
        certs = CertWatcher(
            Path(self._configuration.webhook.cert_dir),
            lambda: server_context(min_version=tls.min_version, cipher_suites=tls.cipher_suites),
        )
        server = Server(settings.bind_address, METRICS_OPTIONS, clock=self._clock, certs=certs)
        serving = asyncio.create_task(server.run(app), name="metrics")
        stack.push_async_callback(cancel_and_wait, [serving])
        return [serving]

    def _new_http_client(self, *, user_agent: str, guard: Callable[[], None] | None, tries: int) -> KubeClient:
        limits = self._configuration.client_connection
        limiter = None
        if limits.qps and limits.burst:
            limiter = RateLimiter(qps=limits.qps, burst=limits.burst, clock=self._clock)
        return KubeClient(
            self._rest_config,
            user_agent=user_agent,
            guard=guard,
            tries=tries,
            limiter=limiter,
            missing_rights=self._missing_rights,
            clock=self._clock,
        )

    def _certificates(self, client: KubeClient, recorder: EventRecorder) -> CertificateController | None:
        if not manages_certificates(self._configuration, status_server=self._status_server is not None):
            return None
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

    def _lease_health(self) -> str | None:
        """Say why this replica could not lead if it had to."""
        verbs = ("get", "create", "update")
        missing = self._missing_rights.of(LEASES, verbs) if self._missing_rights is not None else []
        return f"the service account may not {', '.join(missing)}" if missing else None

    async def _webhooks(
        self, caches: Caches, certificates: CertificateController | None, stack: AsyncExitStack
    ) -> WebhookServer | None:
        settings = self._configuration.webhook
        if not settings.enabled:
            return None
        # A client of their own: whatever is sent to the webhooks, no reconcile waits for its connections or its limits.
        reader = self._new_client(user_agent=USER_AGENT + WEBHOOKS_SUFFIX, guard=None, tries=TRIES)
        await stack.enter_async_context(reader)
        workers = Workers()
        admission = AdmissionHandlers(
            self._framework,
            caches.stores(),
            reader,
            job_kinds=self._job_kinds,
            namespaces=frozenset(self._configuration.watch_namespaces),
            workers=workers,
            clock=self._clock,
        )
        service = self._configuration.cert_management.webhook_service_name
        return WebhookServer(
            admission.handlers(),
            workers,
            settings,
            self._configuration.tls,
            clock=self._clock,
            verifications=certificates.verifications if certificates is not None else tuple,
            now=certificates.now if certificates is not None else None,
            called=None if certificates is not None else f"{service}.{operator_namespace()}.svc",
        )

    def _election(self) -> Election | None:
        election = self._configuration.leader_election
        if not election.leader_elect:
            return None
        namespace = self._lease_namespace()

        def make_elector(client: LeaseClient, on_overrun: Callable[[], None]) -> LeaderElector:
            return LeaderElector(
                client,
                lease_namespace=namespace,
                lease_name=election.resource_name,
                identity=self._identity,
                lease_duration=seconds(election.lease_duration),
                renew_deadline=seconds(election.renew_deadline),
                retry_period=seconds(election.retry_period),
                clock=self._clock,
                on_overrun=on_overrun,
            )

        # The elector has its own idea of when to try again.
        client = self._new_client(user_agent=USER_AGENT + USER_AGENT_SUFFIX, guard=None, tries=1)
        return (ElectionInThread if self._elect_in_thread else ElectionOnLoop)(client, make_elector)

    def _lease_namespace(self) -> str:
        configured = self._configuration.leader_election.resource_namespace
        return configured or pod_namespace() or self._rest_config.namespace

    def _other_leaders(self, client: KubeClient) -> list[OtherLeaders]:
        """Return who looks for a second installation; one of named namespaces has no right to look at the others."""
        election = self._configuration.leader_election
        if not election.leader_elect or self._configuration.watch_namespaces:
            return []
        namespace, name = self._lease_namespace(), election.resource_name
        return [OtherLeaders(client, namespace=namespace, name=name, clock=self._clock)]


def _leader_health(election: Election) -> str | None:
    healthy = election.is_healthy()
    return None if healthy else "this leader has not renewed its lease for longer than the lease lasts"


def _sync_health(caches: Iterable[Caches | TrainingOperator]) -> str | None:
    missing = [each for some in caches for each in some.not_synced()]
    return f"waiting for {'; '.join(missing)}" if missing else None
