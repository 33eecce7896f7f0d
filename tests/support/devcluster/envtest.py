"""An API server for tests: everything but controllers and kubelet, in memory, on a free port, gone with its context."""

import secrets
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from support.devcluster.fault_injection import FaultInjector
from support.devcluster.faults import Faults

from trainmaster.devcluster.apiserver.admission.webhook import LocalServices, WebhookDispatcher
from trainmaster.devcluster.apiserver.auth.rbac import RbacAuthorizer
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens, SigningKey
from trainmaster.devcluster.apiserver.bootstrap import (
    add_system_priority_classes,
    create_system_namespaces,
    ensure_bootstrap_policy,
    register_plugins,
)
from trainmaster.devcluster.apiserver.filters.audit import AuditLog
from trainmaster.devcluster.apiserver.handlers.pod_exec import ContainerExecutor
from trainmaster.devcluster.apiserver.handlers.pod_log import LogSource
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.server import ApiServer, ServerTiming
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.apiserver.storage.store import HISTORY
from trainmaster.devcluster.certificates import ensure_certificates
from trainmaster.devcluster.kubeconfig import write_kubeconfig
from trainmaster.devcluster.proxy import EndpointResolver


@dataclass(frozen=True, slots=True)
class Environment:
    """A running API server and what a client needs to reach it."""

    api: Api
    server: ApiServer
    url: str
    token: str
    authority: Path
    kubeconfig: Path
    tokens: ServiceAccountTokens
    services: LocalServices
    """Where the services of admission webhooks are registered."""

    faults: Faults
    """What the server does wrong on purpose."""

    def session(self, **options: Any) -> aiohttp.ClientSession:
        """Open an authenticated session whose paths are relative to the server."""
        context = ssl.create_default_context(cafile=str(self.authority))
        options.setdefault("headers", {"Authorization": f"Bearer {self.token}"})
        return aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(ssl=context), **options)


@asynccontextmanager
async def start_environment(
    directory: Path,
    *,
    log_source: LogSource | None = None,
    executor: ContainerExecutor | None = None,
    timing: ServerTiming | None = None,
    history: int = HISTORY,
    rbac: bool = False,
    workload_aware_scheduling: bool = False,
    audit: AuditLog | None = None,
    routes: Iterable[web.AbstractRouteDef] = (),
) -> AsyncIterator[Environment]:
    """Serve an empty cluster with the usual namespaces over HTTPS; certificates and kubeconfig go to `directory`.

    `routes` are served besides the paths of Kubernetes.
    """
    store = Store(history=history)
    api = Api(store, builtin_registry(workload_aware_scheduling=workload_aware_scheduling))
    faults = Faults()
    register_plugins(api)
    await create_system_namespaces(api)
    await ensure_bootstrap_policy(api)
    await add_system_priority_classes(api)
    tokens = ServiceAccountTokens(api, SigningKey())
    certificates = ensure_certificates(directory / "certificates", now=datetime.now(UTC))
    token = secrets.token_urlsafe(16)
    services = LocalServices()
    resolver = EndpointResolver(api, services)
    server = ApiServer(
        api,
        token=token,
        ssl_context=certificates.server_context(),
        log_source=log_source,
        executor=executor,
        locator=resolver,
        tokens=tokens,
        authorizer=RbacAuthorizer(api) if rbac else None,
        timing=timing,
        audit=audit,
        middlewares=[FaultInjector(faults).inject],
        routes=routes,
        pre_shutdown_hooks=[faults.clear],
    )
    webhooks = WebhookDispatcher(api, services)
    api.admit_by(webhooks)
    url = f"https://127.0.0.1:{await server.start()}"
    kubeconfig = directory / "kubeconfig"
    write_kubeconfig(kubeconfig, server=url, authority_pem=certificates.authority_pem, token=token)
    try:
        yield Environment(api, server, url, token, certificates.authority, kubeconfig, tokens, services, faults)
    finally:
        await server.stop()
        await webhooks.close()
        resolver.close()
        store.close()
