"""Which cluster to talk to, and with which credentials.

Guarantees:
- The order is: an explicit kubeconfig, `$KUBECONFIG`, the service account of the pod, `~/.kube/config`.
- Credentials stay fresh: token files are read again, and exec plugins and identity providers asked again before their
  token expires, and once more when the server answers 401.
- Certificates stay fresh: changed files, of the authorities that we trust or of our own certificate, make a new TLS
  context for the connections from then on. Files that do not parse change nothing.
- Whatever is wrong at the start becomes a `ConfigurationError` that names the file and says what to do. Whatever goes
  wrong later is logged, and what was good before stays in use until the server refuses it.
- Everything that runs or answers on our behalf, exec plugins and identity providers, has a limit of time.

kubernetes_asyncio merges kubeconfig files and finds what authenticates a user; nothing else of it is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainmaster.controller.kube.auth.incluster import SERVICE_ACCOUNT, ServiceAccountCredentials
from trainmaster.controller.kube.auth.proxy import proxy_for
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig

_HINT: Final = "pass --kubeconfig or set KUBECONFIG to the path of a kubeconfig file"


async def load_config(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    clock: Clock | None = None,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> RestConfig:
    """Find the configuration of the cluster and load it.

    Args:
        kubeconfig: The kubeconfig file, or several separated as in `$KUBECONFIG`; None to look for one.
        environment: Where `$KUBECONFIG` and the address of a pod's cluster are looked up.

    Raises:
        ConfigurationError: There is none, or it cannot be used.
    """
    clock = clock or SystemClock()
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
    # Its library is of no use to those who need no kubeconfig, as a manager in a pod.
    from trainmaster.controller.kube.auth.kubeconfig_credentials import KubeconfigCredentials  # noqa: PLC0415 - see above

    credentials = KubeconfigCredentials(paths, context=context, source=source, clock=clock)
    cluster = await credentials.load()
    name = f"kubeconfig {paths} (from {source})"
    config = RestConfig(server=cluster["server"], server_hostname=cluster.get("tls-server-name"), source=name)
    config.proxy = proxy_for(config.server, configured=cluster.get("proxy-url"))
    credentials.bind(config)
    return config


def _any_exists(paths: str) -> bool:
    return any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path)


def _from_service_account(directory: Path, *, environment: Mapping[str, str], clock: Clock) -> RestConfig:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT") or "443"
    name = "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT"
    config = RestConfig(server=f"https://{f'[{host}]' if ':' in host else host}:{port}", source=name)
    config.proxy = proxy_for(config.server)
    ServiceAccountCredentials(directory, clock=clock).bind(config)
    return config
