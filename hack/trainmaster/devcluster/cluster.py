"""The embedded cluster in one process: store, API server and the parts that were asked for.

Guarantees:
- After `start` the API answers, all definitions are established and every part is started; after `stop` nothing runs,
  no pod either. The journal outlives both, so the next start finds every object that was acknowledged.
- Only `settle` tells others of the cluster: when the manager is ready and its webhooks are registered, or when it is
  known that it does not run.
- It listens on the loopback interface only, with TLS, and needs the token of the state directory.
- A part that fails is not hidden: `failure` ends with its error.
- Without parts it is a bare API server that serves the built-in kinds and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog
from aiohttp import web

from trainmaster.devcluster.announcement import announce
from trainmaster.devcluster.apiserver.admission.plugins.install import install_plugins
from trainmaster.devcluster.apiserver.admission.plugins.priority import seed_priority_classes
from trainmaster.devcluster.apiserver.admission.webhook import LocalServices, Webhooks
from trainmaster.devcluster.apiserver.auth.bootstrap_roles import seed_roles
from trainmaster.devcluster.apiserver.auth.jwt import SigningKey
from trainmaster.devcluster.apiserver.auth.rbac import RbacAuthorizer
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import AccountTokens
from trainmaster.devcluster.apiserver.http.audit import AuditLog
from trainmaster.devcluster.apiserver.http.server import HttpServer
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, seed
from trainmaster.devcluster.apiserver.storage import Journal, JournalError, Store
from trainmaster.devcluster.certificates import ServerCertificates, ensure_certificates
from trainmaster.devcluster.components import CONTROLLERS, GARBAGE_COLLECTION, KUBELET, MANAGER, PARTS
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector
from trainmaster.devcluster.controllers.job.controller import JobController
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.devcluster.controllers.loop import Controller
from trainmaster.devcluster.controllers.namespace import NamespaceController
from trainmaster.devcluster.controllers.resourceclaim.controller import ResourceClaimController
from trainmaster.devcluster.controllers.serviceaccount import ServiceAccountController
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    install_definitions,
)
from trainmaster.devcluster.kubeconfig import write_kubeconfig
from trainmaster.devcluster.kubeconfig_export import CLUSTER_NAME, check_replaceable
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.network.mode import REWRITING, NamespacesUnavailable, Networking, choose_networking
from trainmaster.devcluster.kubelet.settings import KubeletSettings
from trainmaster.devcluster.manager.health import READY, STARTING, ManagerHealth, ManagerState
from trainmaster.devcluster.manager.process import Manager
from trainmaster.devcluster.manager.routes import manager_routes
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks, forget_webhooks
from trainmaster.devcluster.ports import HOST, candidate_ports
from trainmaster.devcluster.scheduler.gangs.queues import QueueController
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.devcluster.state import ClusterError, ClusterRecord, StateDirectory, StateError
from trainmaster.devcluster.testing.fault_injection import FaultControl, FaultInjector
from trainmaster.devcluster.testing.faults import Faults
from trainmaster.runtime.version import __version__

NODE_NAME = "trainmaster"
MANAGER_TIMEOUT = 60.0
"""Seconds that the manager gets to become ready; on an idle machine it takes two."""

_SIGNING_KEY = "service-accounts.key"

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class PortInUse(ClusterError):
    """The server cannot have its port."""


class NetworkingUnavailable(ClusterError):
    """Pods cannot run in the mode that was asked for."""


class AuditLogUnusable(ClusterError):
    """The audit log cannot be written where it was wanted."""


class PartFailed(ClusterError):
    """A part ended although nobody asked it to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What can be chosen about a cluster."""

    state: StateDirectory
    port: int | None = None
    """None: the port that this cluster had before, or a free one."""

    parts: frozenset[str] = frozenset(PARTS)
    token: str | None = None
    kubeconfig: Path | None = None
    """Where to write the kubeconfig; None: into the state directory."""

    manager_config: Path | None = None
    fault_control: bool = False
    """Whether clients may make the server fail, see `testing.fault_injection`."""

    audit_log: Path | None = None
    """Where to write a line for each request, see `http.auditing`; None: nowhere."""

    rbac: bool = False
    """Whether roles decide what service accounts and impersonated users may do; else they may do everything."""

    controllers: ControllerSettings = field(default_factory=ControllerSettings)
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)


class Cluster:
    """One embedded cluster; an async context manager."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._state = settings.state
        self._stack = ExitStack()
        self._http: HttpServer | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._record: ClusterRecord | None = None
        self._api: Api | None = None
        self._webhooks: Webhooks | None = None
        self.services = LocalServices()
        """Where services that answer for admission webhooks are registered."""

        self.faults = Faults()
        """What the server does wrong on purpose."""

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
        """What the running cluster tells about itself."""
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
            NetworkingUnavailable: Pods cannot run in the mode that was asked for.
            KubeconfigUnusable: The kubeconfig cannot be written where it was wanted.
            AuditLogUnusable: The audit log cannot be written where it was wanted.
        """
        settings, state = self._settings, self._state
        self._stack.enter_context(state.hold())
        before = state.read_record()
        kubeconfig = (settings.kubeconfig or state.kubeconfig).absolute()
        check_replaceable(kubeconfig)
        token = state.ensure_token(settings.token)
        certificates = ensure_certificates(state.certificates, now=datetime.now(UTC))
        api = self._open_api()
        await seed(api)
        await seed_roles(api)
        await seed_priority_classes(api)
        controllers = self._controllers(api, certificates)
        networking = await self._networking()
        kubelet, port = await self._serve(
            api, certificates, token, networking, candidate_ports(settings.port, before=before.port if before else None)
        )
        server = _url(port)
        # Always in the state directory as well: the manager reads it, and `trainmaster run` looks for it.
        for path in {state.kubeconfig, kubeconfig}:
            write_kubeconfig(
                path, server=server, authority_pem=certificates.authority_pem, token=token, name=CLUSTER_NAME
            )
        await install_definitions(api, self._definitions())
        if MANAGER in settings.parts:
            await announce(api)
        await forget_webhooks(api)
        # Those of others may be gone as well, and must not keep the cluster from starting.
        self._webhooks = Webhooks(api, self.services)
        api.admit_by(self._webhooks)
        for name, controller in controllers.items():
            self._run(name, controller.run())
        if KUBELET in settings.parts:
            self._run(KUBELET, kubelet.run())
        if MANAGER in settings.parts:
            webhooks = ManagerWebhooks(state.certificates / "webhooks", self.services)
            self._run(MANAGER, self._manager(webhooks).run(api))
        self._api = api
        self._record = ClusterRecord(
            version=__version__,
            pid=os.getpid(),
            port=port,
            server=server,
            kubeconfig=str(kubeconfig),
            parts=tuple(part for part in PARTS if part in settings.parts),
            networking=str(networking),
        )
        _log.info("cluster is started", server=server, parts=",".join(self._record.parts))

    async def settle(self) -> ManagerState | None:
        """Wait until the manager is ready, or known not to become so; tell about the cluster in its state directory.

        Returns:
            What the manager is at; None in a cluster without one.
        """
        record, manager = self.record, None
        if MANAGER in record.parts:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MANAGER_TIMEOUT):
                    await self.health.until(lambda state: state.phase != STARTING)
            manager = self.health.state
        self._state.write_record(record)
        if manager is None or manager.phase == READY:
            _log.info("cluster is ready", server=record.server)
        else:
            _log.error("the cluster is not ready: its manager does not run", manager=manager.words)
        return manager

    async def failure(self) -> None:
        """Wait until a part fails, and raise that as `PartFailed`."""
        if not self._tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        task = done.pop()
        error = task.exception()
        _log.error("a part of the cluster failed", part=task.get_name(), exc_info=error)
        raise PartFailed(f"{task.get_name()} failed ({error!r}); see {self._state.log} and start the cluster again")

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
            raise StateError(str(error)) from error
        except OSError as error:
            raise StateError(
                f"cannot use {self._state.journal}: {error.strerror or error}; make it writable"
            ) from error
        self._stack.callback(store.close)
        api = Api(store, builtin_registry())
        install_plugins(api)
        return api

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
        self,
        api: Api,
        certificates: ServerCertificates,
        token: str,
        networking: Networking,
        ports: Iterable[int],
    ) -> tuple[Kubelet, int]:
        """Start the server on the first port that can be had."""
        tokens = AccountTokens(api, SigningKey.ensure(self._state.certificates / _SIGNING_KEY))
        audit = self._open_audit_log()
        reason = "no port is left"
        for port in ports:
            kubelet = Kubelet(
                api,
                node_name=NODE_NAME,
                root_dir=self._state.kubelet,
                server_url=_url(port),
                networking=networking,
                clock=api.clock,
                settings=self._settings.kubelet,
                tokens=tokens,
            )
            self._http = HttpServer(
                api,
                token=token,
                ssl_context=certificates.server_context(),
                log_source=kubelet.logs if KUBELET in self._settings.parts else None,
                tokens=tokens,
                authorizer=RbacAuthorizer(api) if self._settings.rbac else None,
                audit=audit,
                middlewares=[FaultInjector(self.faults, api.registry).inject],
                routes=self._routes(),
                pre_shutdown_hooks=[self.faults.clear],
            )
            try:
                return kubelet, await self._http.start(HOST, port)
            except OSError as error:
                if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    raise
                reason = os.strerror(error.errno)
        raise PortInUse(
            f"cannot listen on {HOST}:{port}: {reason}; choose another port with --port, or 0 for a free one"
        )

    def _routes(self) -> list[web.RouteDef]:
        """Return what is served besides the API of Kubernetes."""
        faults = FaultControl(self.faults).routes() if self._settings.fault_control else []
        return faults + (manager_routes(self.health) if MANAGER in self._settings.parts else [])

    def _controllers(self, api: Api, certificates: ServerCertificates) -> dict[str, Controller]:
        parts, settings = self._settings.parts, self._settings.controllers
        controllers: dict[str, Controller] = {}
        if CONTROLLERS in parts:
            root_ca = certificates.authority_pem.decode("ascii")
            controllers |= {
                "jobset": JobSetController(api, settings=settings),
                "job": JobController(api, settings=settings),
                "scheduler": Scheduler(api, settings=settings),
                "queues": QueueController(api, settings=settings),
                "resource-claims": ResourceClaimController(api, settings=settings),
                "serviceaccounts": ServiceAccountController(api, settings=settings, root_ca=root_ca),
            }
        if GARBAGE_COLLECTION in parts:
            controllers |= {
                "garbage-collection": GarbageCollector(api, settings=settings),
                "namespaces": NamespaceController(api, settings=settings),
            }
        return controllers

    def _definitions(self) -> tuple[str, ...]:
        parts = self._settings.parts
        controlled = (*JOBSET_DEFINITIONS, *GANG_DEFINITIONS) if CONTROLLERS in parts else ()
        return controlled + (TRAINER_DEFINITIONS if MANAGER in parts else ())

    def _manager(self, webhooks: ManagerWebhooks) -> Manager:
        return Manager(
            kubeconfig=self._state.kubeconfig,
            log=self._state.manager_log,
            configuration=self._settings.manager_config,
            merged_configuration=self._state.manager_config,
            webhooks=webhooks,
            health=self.health,
        )

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=name)


def _url(port: int) -> str:
    return f"https://{HOST}:{port}"


def _started(value: _T | None) -> _T:
    if value is None:
        raise RuntimeError("the cluster was not started; use it inside `async with Cluster(...)`")
    return value
