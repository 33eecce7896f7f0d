"""An API server for tests: everything but controllers and kubelet, in memory, on a free port, gone with its context."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from trainmaster.devcluster.access.rbac import RbacAuthorizer
from trainmaster.devcluster.access.roles import seed_roles
from trainmaster.devcluster.access.signing import SigningKey
from trainmaster.devcluster.access.tokens import AccountTokens
from trainmaster.devcluster.admission import LocalServices, Webhooks
from trainmaster.devcluster.api import Api, seed
from trainmaster.devcluster.api.logs import LogSource
from trainmaster.devcluster.certificates import ensure_certificates
from trainmaster.devcluster.controllers.admission.plugins import install_plugins
from trainmaster.devcluster.controllers.admission.priorities import seed_priority_classes
from trainmaster.devcluster.health import ManagerHealth
from trainmaster.devcluster.http.auditing import AuditLog
from trainmaster.devcluster.http.server import HttpServer, ServerTiming
from trainmaster.devcluster.kinds.builtin import builtin_registry
from trainmaster.devcluster.kubeconfig import write_kubeconfig
from trainmaster.devcluster.store import Store
from trainmaster.devcluster.store.store import HISTORY


@dataclass(frozen=True, slots=True)
class ServedApi:
    """A running API server and what a client needs to reach it."""

    api: Api
    server: HttpServer
    url: str
    token: str
    authority: Path
    kubeconfig: Path
    tokens: AccountTokens
    services: LocalServices
    """Where the services of admission webhooks are registered."""

    def session(self, **options: Any) -> aiohttp.ClientSession:
        """Open an authenticated session whose paths are relative to the server."""
        context = ssl.create_default_context(cafile=str(self.authority))
        options.setdefault("headers", {"Authorization": f"Bearer {self.token}"})
        return aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(ssl=context), **options)


@asynccontextmanager
async def serve_api(
    directory: Path,
    *,
    log_source: LogSource | None = None,
    timing: ServerTiming | None = None,
    history: int = HISTORY,
    rbac: bool = False,
    fault_control: bool = False,
    audit: AuditLog | None = None,
    manager: ManagerHealth | None = None,
) -> AsyncIterator[ServedApi]:
    """Serve an empty cluster with the usual namespaces over HTTPS; certificates and kubeconfig go to `directory`."""
    registry = builtin_registry()
    store = Store(history=history)
    api = Api(store, registry)
    install_plugins(api)
    await seed(api)
    await seed_roles(api)
    await seed_priority_classes(api)
    tokens = AccountTokens(api, SigningKey())
    certificates = ensure_certificates(directory / "certificates", now=datetime.now(UTC))
    token = secrets.token_urlsafe(16)
    server = HttpServer(
        api,
        registry,
        token=token,
        ssl_context=certificates.server_context(),
        log_source=log_source,
        tokens=tokens,
        authorizer=RbacAuthorizer(api) if rbac else None,
        timing=timing,
        fault_control=fault_control,
        audit=audit,
        manager=manager,
    )
    services = LocalServices()
    webhooks = Webhooks(api, services)
    api.admit_by(webhooks)
    url = f"https://127.0.0.1:{await server.start()}"
    kubeconfig = directory / "kubeconfig"
    write_kubeconfig(kubeconfig, server=url, authority_pem=certificates.authority_pem, token=token)
    try:
        yield ServedApi(api, server, url, token, certificates.authority, kubeconfig, tokens, services)
    finally:
        await server.stop()
        await webhooks.close()
        store.close()
