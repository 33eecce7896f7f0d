"""FieldError the configuration of the cluster; `configuration` states the guarantees."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from trainmaster.controller.kube.auth.incluster import SERVICE_ACCOUNT, ServiceAccountCredentials
from trainmaster.controller.kube.auth.kubeconfig import KubeconfigCredentials
from trainmaster.controller.kube.auth.proxy import proxy_for
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig

_HINT: Final = "pass --kubeconfig or set KUBECONFIG to the path of a kubeconfig file"


async def load(
    *,
    kubeconfig: str | None,
    context: str | None,
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> RestConfig:
    """Find the configuration of the cluster and load it."""
    if kubeconfig is not None:
        return await _from_kubeconfig(kubeconfig, context=context, source="--kubeconfig", clock=clock)
    if paths := environment.get("KUBECONFIG"):
        return await _from_kubeconfig(paths, context=context, source="$KUBECONFIG", clock=clock)
    if environment.get("KUBERNETES_SERVICE_HOST") and context is None:
        return _from_service_account(service_account, environment=environment, clock=clock)
    default = Path.home() / ".kube" / "config"
    if not default.exists():
        raise ConfigurationError(f"no cluster is configured: {default} does not exist; {_HINT}")
    return await _from_kubeconfig(str(default), context=context, source="the default kubeconfig", clock=clock)


async def _from_kubeconfig(paths: str, *, context: str | None, source: str, clock: Clock) -> RestConfig:
    if not _any_exists(paths):
        raise ConfigurationError(f"kubeconfig {paths} (from {source}) does not exist; {_HINT}")
    credentials = KubeconfigCredentials(paths, context=context, source=source, clock=clock)
    await credentials.load()
    found = credentials.configuration
    access = _access(str(found.host), server_hostname=found.tls_server_name, proxy=found.proxy)
    credentials.bind(access)
    return access


def _any_exists(paths: str) -> bool:
    return any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path)


def _from_service_account(directory: Path, *, environment: Mapping[str, str], clock: Clock) -> RestConfig:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT") or "443"
    access = _access(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
    ServiceAccountCredentials(directory, clock=clock).bind(access)
    return access


def _access(server: str, *, server_hostname: str | None = None, proxy: str | None = None) -> RestConfig:
    try:
        url = urlsplit(server)
        usable = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(f"the server {server!r} of the cluster is not an http or https URL")
    return RestConfig(
        server=server.rstrip("/"), server_hostname=server_hostname, proxy=proxy_for(server, configured=proxy)
    )
