"""What a manager consists of, for a configuration and its plugins: made and connected here, started by `manager`.

Guarantees:
- L-12: whatever ends the manager, whether it ever led or not, closes every connection and empties every queue.
- Election, webhooks and metrics have clients of their own: whatever is sent to them, no reconcile waits for their
  connections or their limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from trainmaster.controller.configuration import Configuration, manages_certificates
from trainmaster.controller.job_metrics.observer import TrainJobObserver
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.leaderelection.election_thread import USER_AGENT_SUFFIX, Election, ElectionInThread
from trainmaster.controller.kube.leaderelection.elector import LeaderElector, new_identity
from trainmaster.controller.kube.leaderelection.lease import LeaseClient
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.http1.transport import HttpTransport
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.retry import TRIES
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.controllers import make_controllers
from trainmaster.controller.manager.other_leaders import OtherLeaders
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.process import end_process
from trainmaster.controller.manager.training_operator import TrainingOperator
from trainmaster.controller.missing_rights import MissingRights
from trainmaster.controller.operator_namespace import operator_namespace, pod_namespace
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.controller import Controller, require_unique_names
from trainmaster.controller.resilience.lost_nodes import NAME as LOST_NODES
from trainmaster.controller.resilience.lost_nodes import LostNodes
from trainmaster.controller.statusserver.server import StatusServer
from trainmaster.controller.webhooks import AdmissionHandlers, WebhookServer, Workers
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.metrics.trainjobs import TrainJobsMetrics
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE
from trainmaster.runtime.api.meta import duration_seconds
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.version import __version__

if TYPE_CHECKING:
    from trainmaster.controller.certificates.controller import CertificateController
    from trainmaster.controller.manager.pages import ManagerHistory
    from trainmaster.controller.tracing.tracing import Tracing

USER_AGENT: Final = f"trainmaster/{__version__}"
WEBHOOKS_SUFFIX: Final = "/webhooks"
METRICS_SUFFIX: Final = "/metrics"


class NewClient(Protocol):
    """Makes clients of the cluster."""

    def __call__(self, *, user_agent: str, guard: Callable[[], None] | None, tries: int) -> KubeClient:
        """Make a client that calls `guard` before each write and sends a request up to `tries` times."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a manager is made from.

    Attributes:
        rest_config: The cluster.
        configuration: The configuration file.
        framework: The plugins.
        clock: The time.
        new_client: Makes clients; by default over HTTP, limited as the configuration says.
        elect_in_thread: Whether the election has a thread of its own; simulations keep everything on one loop.
        status_server: The server to which trainers report, where the feature is on.
        job_kinds: The kinds of jobs of `kubeflow.org/v1`, and others like them; none: they are switched off.
        tracing: Records what is done as traces; without it nothing is.
    """

    rest_config: RestConfig
    configuration: Configuration
    framework: Framework
    clock: Clock = field(default_factory=SystemClock)
    new_client: NewClient | None = None
    elect_in_thread: bool = True
    status_server: StatusServer | None = None
    job_kinds: Sequence[JobKind] = ()
    tracing: Tracing | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a manager."""

    new_client: NewClient
    missing_rights: MissingRights
    election: Election | None
    recorder: EventRecorder
    caches: Caches
    jobs: TrainingOperator
    controllers: Sequence[Controller]
    lost_nodes: LostNodes
    history: ManagerHistory | None
    certificates: CertificateController | None
    webhooks: WebhookServer | None
    status_server: StatusServer | None
    other_leaders: OtherLeaders | None

    @property
    def servers(self) -> list[WebhookServer | StatusServer]:
        """The servers that others call, which need a while until nobody does any more."""
        return [server for server in (self.webhooks, self.status_server) if server is not None]


async def make_parts(setup: Setup, stack: AsyncExitStack) -> Parts:
    """Make all parts; those that have to be closed are when the stack is."""
    configuration, clock, framework = setup.configuration, setup.clock, setup.framework
    watches = framework.watches()
    rules = policy_rules(
        configuration,
        features={TRAIN_JOB_STATUS_GATE} if setup.status_server is not None else (),
        watches=watches,
        job_kinds=setup.job_kinds,
        namespace=operator_namespace(),
    )
    missing_rights = MissingRights(rules)
    new_client = setup.new_client or partial(http_client, setup, missing_rights)
    identity = new_identity()
    lease_namespace = lease_namespace_of(setup)
    election = _election(setup, new_client, namespace=lease_namespace, identity=identity)
    guard = election.elector.guard if election is not None else None
    client = await stack.enter_async_context(new_client(user_agent=USER_AGENT, guard=guard, tries=TRIES))
    recorder = EventRecorder(
        client, reporting_controller="trainer-trainjob-controller", reporting_instance=identity, clock=clock
    )
    caches = Caches(client, watches, namespaces=configuration.watch_namespaces, clock=clock)
    planner = ThreadPoolExecutor(1, thread_name_prefix="planner")  # for what is large
    stack.callback(planner.shutdown, wait=False, cancel_futures=True)
    jobs = TrainingOperator(
        client,
        setup.job_kinds,
        recorder=recorder,
        configuration=configuration,
        clock=clock,
        tracing=setup.tracing,
        planner=planner,
        on_served=caches.do_without_own,
    )
    stack.callback(jobs.close)
    lost_nodes = LostNodes(
        client,
        WorkQueue(clock=clock, metrics=WorkQueueMetrics(LOST_NODES)),
        caches.listers(),
        clock=clock,
        may_watch=not configuration.watch_namespaces,
    )
    trainjobs = make_controllers(
        client=client,
        caches=caches,
        framework=framework,
        planner=planner,
        plugin_threads=_plugin_threads(setup, stack),
        recorder=recorder,
        configuration=configuration,
        clock=clock,
        observer=_observer(setup, stack),
        lost_nodes=lost_nodes,
        tracing=setup.tracing,
    )
    controllers = [*trainjobs, *jobs.controllers]
    require_unique_names(controllers)
    for controller in controllers:
        # Also of one that never led: its keys would stay in the metrics of this process.
        stack.callback(controller.queue.shut_down)
    certificates = _certificates(setup, client, recorder)
    return Parts(
        new_client=new_client,
        missing_rights=missing_rights,
        election=election,
        recorder=recorder,
        caches=caches,
        jobs=jobs,
        controllers=controllers,
        lost_nodes=lost_nodes,
        history=_history(setup, caches, jobs, stack),
        certificates=certificates,
        webhooks=await _webhooks(setup, new_client, caches, certificates, stack),
        status_server=setup.status_server,
        other_leaders=_other_leaders(setup, client, lease_namespace),
    )


def http_client(
    setup: Setup,
    missing_rights: MissingRights | None = None,
    *,
    user_agent: str,
    guard: Callable[[], None] | None,
    tries: int,
) -> KubeClient:
    """Make a client over HTTP, limited as the configuration says."""
    limits = setup.configuration.client_connection
    limiter = None
    if limits.qps and limits.burst:
        limiter = RateLimiter(qps=limits.qps, burst=limits.burst, clock=setup.clock)
    transport = None
    if setup.tracing is not None:
        http = HttpTransport(setup.rest_config, clock=setup.clock)
        transport = setup.tracing.transport(http, server=setup.rest_config.server)
    return KubeClient(
        setup.rest_config,
        user_agent=user_agent,
        guard=guard,
        tries=tries,
        limiter=limiter,
        missing_rights=missing_rights,
        clock=setup.clock,
        transport=transport,
    )


def lease_namespace_of(setup: Setup) -> str:
    """Return the namespace of the lease: as configured, else that of the pod, else that of the kubeconfig."""
    return setup.configuration.leader_election.resource_namespace or pod_namespace() or setup.rest_config.namespace


def _election(setup: Setup, new_client: NewClient, *, namespace: str, identity: str) -> Election | None:
    settings = setup.configuration.leader_election
    if not settings.leader_elect:
        return None

    def make_elector(client: LeaseClient, on_overrun: Callable[[], None]) -> LeaderElector:
        return LeaderElector(
            client,
            lease_namespace=namespace,
            lease_name=settings.resource_name,
            identity=identity,
            lease_duration=duration_seconds(settings.lease_duration),
            renew_deadline=duration_seconds(settings.renew_deadline),
            retry_period=duration_seconds(settings.retry_period),
            clock=setup.clock,
            on_overrun=on_overrun,
        )

    # The elector has its own idea of when to try again.
    client = new_client(user_agent=USER_AGENT + USER_AGENT_SUFFIX, guard=None, tries=1)
    if not setup.elect_in_thread:
        return Election(client, make_elector)
    return ElectionInThread(client, make_elector, end=end_process)


def _other_leaders(setup: Setup, client: KubeClient, namespace: str) -> OtherLeaders | None:
    settings = setup.configuration.leader_election
    if not settings.leader_elect or setup.configuration.watch_namespaces:
        return None  # a manager of named namespaces has no right to look at others
    return OtherLeaders(client, namespace=namespace, name=settings.resource_name, clock=setup.clock)


def _observer(setup: Setup, stack: AsyncExitStack) -> TrainJobObserver:
    trace_id = setup.tracing.trace_id if setup.tracing is not None else lambda _uid: ""
    observer = TrainJobObserver(TrainJobsMetrics(), clock=setup.clock, trace_id=trace_id)
    stack.callback(observer.close)
    return observer


def _plugin_threads(setup: Setup, stack: AsyncExitStack) -> PluginThreads | None:
    if not setup.framework.guards_others:
        return None
    threads = PluginThreads("planner", skips=setup.framework.skips)
    stack.callback(threads.close)
    return threads


def _history(setup: Setup, caches: Caches, jobs: TrainingOperator, stack: AsyncExitStack) -> ManagerHistory | None:
    if not setup.configuration.history.enabled:
        return None
    from trainmaster.controller.manager.pages import ManagerHistory  # noqa: PLC0415 - seldom on, and has SQLite

    history = ManagerHistory(setup.configuration, caches, jobs.job_informers(), clock=setup.clock)
    history.start()
    stack.push_async_callback(history.close)
    return history


def _certificates(setup: Setup, client: KubeClient, recorder: EventRecorder) -> CertificateController | None:
    if not manages_certificates(setup.configuration, status_server=setup.status_server is not None):
        return None
    from trainmaster.controller.certificates.controller import CertificateController  # noqa: PLC0415 - see there

    return CertificateController(
        client, setup.configuration, namespace=operator_namespace(), recorder=recorder, clock=setup.clock
    )


async def _webhooks(
    setup: Setup,
    new_client: NewClient,
    caches: Caches,
    certificates: CertificateController | None,
    stack: AsyncExitStack,
) -> WebhookServer | None:
    configuration, tracing = setup.configuration, setup.tracing
    if not configuration.webhook.enabled:
        return None
    reader = new_client(user_agent=USER_AGENT + WEBHOOKS_SUFFIX, guard=None, tries=TRIES)
    await stack.enter_async_context(reader)
    workers = Workers(setup.framework.skips if setup.framework.guards_others else None)
    handlers = AdmissionHandlers(
        setup.framework,
        caches.stores(),
        reader,
        workloads=caches.workloads,
        job_kinds=setup.job_kinds,
        namespaces=frozenset(configuration.watch_namespaces),
        workers=workers,
        clock=setup.clock,
    ).handlers()
    service = configuration.cert_management.webhook_service_name
    return WebhookServer(
        handlers if tracing is None else tracing.handlers(handlers),
        workers,
        configuration.webhook,
        configuration.tls,
        clock=setup.clock,
        verifications=certificates.verifications if certificates is not None else tuple,
        now=certificates.now if certificates is not None else None,
        called=None if certificates is not None else f"{service}.{operator_namespace()}.svc",
        middlewares=() if tracing is None else (tracing.review_middleware(),),
    )
