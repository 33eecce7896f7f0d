"""What a client needs to know of a cluster, and who it is there; `auth.loader` finds it."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

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

    def headers(self) -> Awaitable[Mapping[str, str]]:
        """Return the headers that authenticate a request, refreshed if they are about to expire."""
        return self.credentials.headers()
