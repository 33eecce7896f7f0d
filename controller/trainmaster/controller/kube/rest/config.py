"""What a client needs to know of a cluster, and who it is there; `auth.loader` finds it."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote, urlsplit

from trainmaster.controller.kube.rest.errors import KubeError


class ConfigurationError(KubeError):
    """The access to a cluster is not configured, or wrongly."""


class Peer:
    """The server or the proxy that a URL leads to.

    Raises:
        ConfigurationError: It leads nowhere; `what` says whose URL it is.
    """

    def __init__(self, url: str, what: str, *, tls_name: str | None = None, is_proxy: bool = False) -> None:
        try:
            parts = urlsplit(url)
            self.host, port = parts.hostname or "", parts.port
        except ValueError:
            parts, self.host, port = urlsplit(""), "", None
        path = parts.path
        is_path = path.isascii() and path.isprintable() and " " not in path
        if parts.scheme not in {"http", "https"} or not _is_host(self.host) or port == 0 or not is_path:
            _, at, rest = url.rpartition("@")  # before it is a password, however the rest reads
            raise ConfigurationError(
                f"{what}, {f'...@{rest}' if at else url!r}, is not an http or https URL of a host, with a port from 1 "
                "to 65535 or none; correct it"
            )
        if tls_name and not _is_host(tls_name):
            raise ConfigurationError(
                f"the tls-server-name of {what}, {tls_name!r}, is not the name of a host; correct it"
            )
        user, at, self.netloc = parts.netloc.rpartition("@")
        self.is_proxy = is_proxy
        self.tls = parts.scheme == "https"
        self.tls_name = (tls_name or self.host).rstrip(".")
        """The name that the certificate has to be for."""
        self.port = port or (443 if self.tls else 80)
        self.path = path.rstrip("/")
        """What the paths of all requests begin with."""
        self.login = f"Basic {base64.b64encode(unquote(user).encode()).decode()}" if at else ""
        """The value of the header that sends the user and the password of the URL; empty without them."""
        self.name = f"{'the proxy ' if is_proxy else ''}{parts.scheme}://{self.netloc}"
        """For people, without a user, a password and a path."""


def _is_host(name: str) -> bool:
    """Return whether a text may be the name or the address of a host."""
    try:
        return bool(name.encode("idna")) and name.isprintable()
    except UnicodeError:
        return False


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

    `source` says where the credentials come from, for whoever has to renew them. `server` is kept without the user and
    the password of its URL, since errors and metrics name it; `peer` sends them.

    Raises:
        ConfigurationError: The server is none that can be asked.
    """

    server: str
    ssl_context: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    credentials: Credentials = field(default_factory=Token)
    source: str = ""
    peer: Peer = field(init=False)

    def __post_init__(self) -> None:
        self.peer = Peer(self.server, f"the server of {self.source or 'the cluster'}", tls_name=self.server_hostname)
        self.server = f"{self.peer.name}{self.peer.path}"

    def headers(self) -> Awaitable[Mapping[str, str]]:
        """Return the headers that authenticate a request, refreshed if they are about to expire."""
        return self.credentials.headers()
