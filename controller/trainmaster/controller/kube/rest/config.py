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

Reading and merging kubeconfig files is the work of kubernetes_asyncio; nothing else of it is used.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.errors import KubeError


class ConfigurationError(KubeError):
    """The access to a cluster is not configured, or wrongly."""


class Credentials(Protocol):
    """Who we are, towards the API server."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request, refreshed if they are about to expire."""

    async def renew(self) -> bool:
        """Look for new credentials and certificates because these did not do; False if there are none."""


@dataclass(frozen=True, slots=True)
class Token:
    """A fixed bearer token, or none at all (client certificates are part of the TLS context)."""

    value: str = ""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request."""
        return {"Authorization": f"Bearer {self.value}"} if self.value else {}

    async def renew(self) -> bool:
        """A fixed token cannot be renewed."""
        return False


@dataclass(slots=True, kw_only=True)
class RestConfig:
    """All that a client needs to know of a cluster; the TLS context may be replaced while it is in use.

    `source` says where the credentials come from, for whoever has to renew them.
    """

    server: str
    ssl_context: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    credentials: Credentials = field(default_factory=Token)
    source: str = ""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request, refreshed if they are about to expire."""
        return await self.credentials.headers()


async def load_config(
    *, kubeconfig: str | None = None, context: str | None = None, clock: Clock | None = None
) -> RestConfig:
    """Find the configuration of the cluster and load it."""
    # Importing kubernetes_asyncio takes a third of a second, which commands that need no cluster should not pay.
    from trainmaster.controller.kube.auth.loader import load  # noqa: PLC0415 - see above

    return await load(kubeconfig=kubeconfig, context=context, clock=clock or SystemClock())
