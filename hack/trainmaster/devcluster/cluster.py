"""The embedded cluster in one process: store, API server and the parts that were chosen.

Guarantees:
- After `start` the API answers, all definitions are established and every part is started; after `stop` nothing runs,
  no pod either. The journal outlives both, so the next start finds every object that was acknowledged.
- Only `wait_ready` writes its record: when the manager is ready and its webhooks are registered, or when it is known
  that it does not run.
- It listens on the loopback interface only, with TLS, and needs the token of the state directory.
- A part that fails is not hidden: `failure` ends with its error.
- Without parts it is a bare API server that serves the built-in kinds and nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from trainmaster.devcluster.apiserver.admission.webhook import LocalServices, WebhookDispatcher
from trainmaster.devcluster.apiserver.auth.rbac import RbacAuthorizer
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens, SigningKey
from trainmaster.devcluster.apiserver.bootstrap import (
    add_system_priority_classes,
    create_system_namespaces,
    ensure_bootstrap_policy,
    register_plugins,
)
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.filters.audit import AuditLog
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.server import ApiServer
from trainmaster.devcluster.apiserver.storage import Journal, JournalError, Store
from trainmaster.devcluster.certificates import ServerCertificates, ensure_certificates
from trainmaster.devcluster.controllers.control_loop import Controller
from trainmaster.devcluster.controllers.deployment.controller import DeploymentController
from trainmaster.devcluster.controllers.endpointslice import EndpointSliceController
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector
from trainmaster.devcluster.controllers.job.controller import JobController
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.devcluster.controllers.namespace import NamespaceController
from trainmaster.devcluster.controllers.nodelifecycle import NodeLifecycleController
from trainmaster.devcluster.controllers.protection import pod_group_protection, pvc_protection
from trainmaster.devcluster.controllers.replicaset import ReplicaSetController
from trainmaster.devcluster.controllers.serviceaccount import ServiceAccountController
from trainmaster.devcluster.controllers.tainteviction import TaintEvictionController
from trainmaster.devcluster.controllers.volcanoqueue import QueueController
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    TRAINING_OPERATOR_DEFINITIONS,
    install_definitions,
)
from trainmaster.devcluster.kubeconfig import check_replaceable, write_kubeconfig
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.network.mode import REWRITING, NamespacesUnavailable, Networking, choose_networking
from trainmaster.devcluster.listener import HOST, candidate_ports, listen_on_first, url_of
from trainmaster.devcluster.manager.built_in_runtimes import built_in_runtimes, install_runtimes
from trainmaster.devcluster.manager.health import READY, ManagerHealth, ManagerStatus
from trainmaster.devcluster.manager.local_runtimes import LocalRuntimesController
from trainmaster.devcluster.manager.process import ManagerProcess
from trainmaster.devcluster.manager.public_configmap import publish_configmap
from trainmaster.devcluster.manager.routes import manager_routes
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks, unregister_webhooks
from trainmaster.devcluster.proxy import EndpointResolver, Proxier
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.devcluster.settings import CONTROLLERS, GARBAGE_COLLECTION, KUBELET, MANAGER, PARTS, ClusterSettings
from trainmaster.devcluster.state import AuditLogUnusable, ClusterRecord, NetworkingUnavailable, PartFailed, claim
from trainmaster.runtime.version import __version__

NODE_NAME = "trainmaster"
_SIGNING_KEY = "service-accounts.key"

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class Cluster:
    """One embedded cluster; an async context manager.

    Middlewares, routes and pre-shutdown hooks are those of the `ApiServer`.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        middlewares: Iterable[Middleware] = (),
        routes: Iterable[web.AbstractRouteDef] = (),
        pre_shutdown_hooks: Iterable[Callable[[], None]] = (),
    ) -> None:
        self._settings = settings
        self._middlewares = tuple(middlewares)
        self._routes = tuple(routes)
        self._pre_shutdown_hooks = tuple(pre_shutdown_hooks)
        self._state = settings.state
        self._stack = ExitStack()
        self._http: ApiServer | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._record: ClusterRecord | None = None
        self._notes: list[str] = []
        self._api: Api | None = None
        self._webhooks: WebhookDispatcher | None = None
        self.services = LocalServices()
        """Where services that answer for admission webhooks are registered."""

        self.health = ManagerHealth(str(settings.state.manager_log))
        """Of the manager, if there is one."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    @property
    def record(self) -> ClusterRecord:
        """The record of the running cluster."""
        return _started(self._record)

    @property
    def api(self) -> Api:
        """The API in this process."""
        return _started(self._api)

    async def start(self) -> None:
        """Start the server, then the parts.

        Raises:
            StateError: The state directory cannot be used, for instance because a cluster runs on it.
            PortInUse: The wanted port is taken.
            NetworkingUnavailable: Pods cannot run in the chosen mode.
            KubeconfigUnusable: The kubeconfig cannot be written where it was wanted.
            AuditLogUnusable: The audit log cannot be written where it was wanted.
        """
        with self._state.in_use():
            try:
                await self._start()
            except StatusError as error:
                if (problem := error.__cause__) is not None and isinstance(problem, OSError):
                    raise problem from error  # what the journal met
                raise

    async def _start(self) -> None:
        settings, state = self._settings, self._state
        self._stack.enter_context(state.hold())
        before = state.read_record()
        kubeconfig = (settings.kubeconfig or state.kubeconfig).absolute()
        check_replaceable(kubeconfig)
        token = state.ensure_token(settings.token)
        certificates = ensure_certificates(state.certificates, now=datetime.now(UTC))
        served: asyncio.Future[Api] = asyncio.get_running_loop().create_future()
        if MANAGER in settings.parts:
            webhooks = ManagerWebhooks(state.certificates / "webhooks", self.services)
            self._run(MANAGER, self._manager(webhooks).run(served))
            await asyncio.sleep(0)  # it begins, and imports its program while we go on
        api = self._open_api()
        await create_system_namespaces(api)
        await ensure_bootstrap_policy(api)
        await add_system_priority_classes(api)
        if KUBELET in settings.parts:
            self._claim_machine()
        controllers = self._controllers(api, certificates)
        networking = await self._networking()
        kubelet, resolver, port = await self._serve(
            api, certificates, token, networking, before.port if before else None
        )
        server = url_of(port)
        # Always in the state directory as well: the manager reads it, and `trainmaster run` looks for it.
        for path in {state.kubeconfig, kubeconfig}:
            write_kubeconfig(path, server=server, authority_pem=certificates.authority_pem, token=token)
        await install_definitions(api, self._definitions())
        if MANAGER in settings.parts:
            await publish_configmap(api)
            await install_runtimes(api, built_in_runtimes())
        await unregister_webhooks(api)
        # Those of others may be gone as well, and must not keep the cluster from starting.
        self._webhooks = WebhookDispatcher(api, resolver)
        api.admit_by(self._webhooks)
        for name, controller in controllers.items():
            self._run(name, controller.run())
        if KUBELET in settings.parts:
            self._run(KUBELET, kubelet.run())
            if networking.mode == "namespaces":
                self._run("proxy", Proxier(api, resolver, cluster=kubelet.cluster).run())
        served.set_result(api)
        self._api = api
        self._record = ClusterRecord(
            version=__version__,
            pid=os.getpid(),
            port=port,
            server=server,
            kubeconfig=str(kubeconfig),
            parts=tuple(part for part in PARTS if part in settings.parts),
            networking=str(networking),
            gpus=str(kubelet.gpus) if KUBELET in settings.parts else "",
            notes=tuple(self._notes),
        )
        _log.info("cluster is started", server=server, parts=",".join(self._record.parts))

    async def wait_ready(self) -> ManagerStatus | None:
        """Wait until the manager is ready, or known not to become so; then write the record into the state directory.

        Returns:
            The status of the manager; None in a cluster without one.
        """
        record = self.record
        manager = await self.health.settled() if MANAGER in record.parts else None
        with self._state.in_use():
            self._state.write_record(record)
        if manager is None or manager.phase == READY:
            _log.info("cluster is ready", server=record.server)
        else:
            _log.error("the cluster is not ready: its manager does not run", manager=manager.summary)
        return manager

    async def failure(self) -> None:
        """Wait until a part fails, and raise that as `PartFailed`."""
        if not self._tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        task = done.pop()
        error = task.exception()
        _log.error("a part of the cluster failed", part=task.get_name(), exc_info=error)
        raise PartFailed(
            f"{task.get_name()} failed ({_cause(error)}); see {self._state.log} and start the cluster again"
        )

    async def stop(self) -> None:
        """Stop everything: the manager first, while the API still answers it; the store last."""
        for name in (MANAGER, *self._tasks.keys() - {MANAGER}):
            if task := self._tasks.get(name):
                task.cancel()
                if name == MANAGER:
                    await asyncio.wait([task])
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        if self._http is not None:
            await self._http.stop()
            _log.info("cluster is stopped")
        if self._webhooks is not None:
            await self._webhooks.close()
        self._stack.close()

    def _open_api(self) -> Api:
        try:
            journal = Journal(self._state.journal)
            self._stack.callback(journal.close)
            store = Store(journal=journal)
        except JournalError as error:
            raise self._state.unusable_journal(error) from error
        self._stack.callback(store.close)
        if journal.torn is not None:
            self._notes.append(
                f"the last cluster ended in the middle of a write, which nobody was told to have succeeded: what there "
                f"is of it is kept in {journal.torn}"
            )
            _log.warning("the journal ended in the middle of a write", kept=str(journal.torn))
        registry = builtin_registry(workload_aware_scheduling=self._settings.workload_aware_scheduling)
        api = Api(store, registry)
        register_plugins(api)
        return api

    def _claim_machine(self) -> None:
        """Note which other clusters run on this machine: each of them counts all its CPUs and memory as its own."""
        others: list[str] = []
        while isinstance(claimed := claim(f"cluster-{len(others)}", self._state.path), Path):
            others.append(str(claimed))
        self._stack.callback(os.close, claimed)
        if others:
            self._notes.append(
                f"another embedded cluster runs on this machine ({', '.join(others)}): each counts all CPUs and all "
                "memory as its own, so that jobs of both may slow each other down; a GPU is given to one pod at a time"
            )

    def _open_audit_log(self) -> AuditLog | None:
        path = self._settings.audit_log
        if path is None:
            return None
        try:
            audit = AuditLog(path)
        except OSError as error:
            raise AuditLogUnusable(
                f"cannot write the audit log {path}: {error.strerror or error}; choose another file with --audit-log"
            ) from error
        self._stack.callback(audit.close)
        return audit

    async def _networking(self) -> Networking:
        """Choose how pods find each other; nobody has to know where there are none."""
        if KUBELET not in self._settings.parts:
            return REWRITING
        try:
            return await choose_networking(self._settings.kubelet.networking)
        except NamespacesUnavailable as error:
            raise NetworkingUnavailable(str(error)) from error

    async def _serve(
        self, api: Api, certificates: ServerCertificates, token: str, networking: Networking, port_before: int | None
    ) -> tuple[Kubelet, EndpointResolver, int]:
        """Start the server on the first port that can be had; returns the port, the kubelet that knows it, and what
        finds pods and Services."""
        settings = self._settings
        tokens = ServiceAccountTokens(api, SigningKey.ensure(self._state.certificates / _SIGNING_KEY))
        audit = self._open_audit_log()

        async def serve_on(port: int) -> tuple[Kubelet, EndpointResolver, int]:
            kubelet = Kubelet(
                api,
                node_name=NODE_NAME,
                root_dir=self._state.kubelet,
                server_url=url_of(port),
                networking=networking,
                clock=api.clock,
                settings=settings.kubelet,
                tokens=tokens,
            )
            locate = kubelet.locate if KUBELET in settings.parts else None
            resolver = EndpointResolver(api, self.services, locate=locate, lag=settings.endpoint_lag)
            self._stack.callback(resolver.close)
            self._http = ApiServer(
                api,
                token=token,
                locator=resolver,
                ssl_context=certificates.server_context(),
                log_source=kubelet.logs if KUBELET in settings.parts else None,
                executor=kubelet if KUBELET in settings.parts else None,
                tokens=tokens,
                authorizer=RbacAuthorizer(api) if settings.rbac else None,
                audit=audit,
                middlewares=self._middlewares,
                routes=[
                    *self._routes,
                    *(manager_routes(self.health, api) if MANAGER in settings.parts else ()),
                    *(kubelet.routes if KUBELET in settings.parts else ()),
                ],
                pre_shutdown_hooks=self._pre_shutdown_hooks,
            )
            return kubelet, resolver, await self._http.start(HOST, port)

        return await listen_on_first(candidate_ports(settings.port, before=port_before), serve_on)

    def _controllers(self, api: Api, certificates: ServerCertificates) -> dict[str, Controller]:
        parts = self._settings.parts
        controllers: dict[str, Controller] = {}
        if CONTROLLERS in parts:
            root_ca = certificates.authority_pem.decode("ascii")
            controllers |= {
                "jobset": JobSetController(api, elastic=self._settings.elastic_jobsets),
                "job": JobController(api),
                "replicasets": ReplicaSetController(api),
                "deployments": DeploymentController(api),
                "endpointslices": EndpointSliceController(api),
                "scheduler": Scheduler(api),
                "queues": QueueController(api),
                "nodelifecycle": NodeLifecycleController(api, grace_period=self._settings.node_monitor_grace_period),
                "tainteviction": TaintEvictionController(api),
                "serviceaccounts": ServiceAccountController(api, root_ca=root_ca),
            }
        if GARBAGE_COLLECTION in parts:
            controllers |= {
                "garbage-collection": GarbageCollector(api),
                "namespaces": NamespaceController(api),
                "pvc-protection": pvc_protection(api),
            }
            if self._settings.workload_aware_scheduling:
                controllers["podgroup-protection"] = pod_group_protection(api)
        if {MANAGER, KUBELET} <= parts:
            controllers["local-runtimes"] = LocalRuntimesController(api)
        return controllers

    def _definitions(self) -> tuple[str, ...]:
        parts = self._settings.parts
        controlled = (*JOBSET_DEFINITIONS, *GANG_DEFINITIONS) if CONTROLLERS in parts else ()
        managed = (*TRAINER_DEFINITIONS, *TRAINING_OPERATOR_DEFINITIONS) if MANAGER in parts else ()
        return controlled + managed

    def _manager(self, webhooks: ManagerWebhooks) -> ManagerProcess:
        return ManagerProcess(
            kubeconfig=self._state.kubeconfig,
            log=self._state.manager_log,
            configuration=self._settings.manager_config,
            merged_configuration=self._state.manager_config,
            history=self._state.history,
            webhooks=webhooks,
            health=self.health,
        )

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=name)


def _cause(error: BaseException | None) -> str:
    """Say what went wrong, of an error or the first one of a group of tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if error is not None else "it ended"


def _started(value: _T | None) -> _T:
    if value is None:
        raise RuntimeError("the cluster was not started; use it inside `async with Cluster(...)`")
    return value
