"""Loading the access to a cluster with kubernetes_asyncio; `configuration` states the guarantees."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, incluster_config, kube_config

from trainmaster.controller.kube.configuration import ClusterAccess, ConfigurationError

REFRESH_PERIOD: Final = 60.0
"""Seconds between two looks at credentials that may expire; service account tokens rotate long before they do."""

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_HINT: Final = "pass --kubeconfig or set KUBECONFIG to the path of a kubeconfig file"


async def load(*, kubeconfig: str | None, context: str | None) -> ClusterAccess:
    """Find the configuration of the cluster and load it."""
    if kubeconfig is not None:
        return await _from_kubeconfig(kubeconfig, context=context, source="--kubeconfig")
    if paths := os.environ.get("KUBECONFIG"):
        return await _from_kubeconfig(paths, context=context, source="$KUBECONFIG")
    if os.environ.get(incluster_config.SERVICE_HOST_ENV_NAME) and context is None:
        return _from_service_account()
    default = Path.home() / ".kube" / "config"
    if not default.exists():
        raise ConfigurationError(f"no cluster is configured: {default} does not exist; {_HINT}")
    return await _from_kubeconfig(str(default), context=context, source="the default kubeconfig")


class _KubeconfigCredentials:
    """Credentials of a kubeconfig; they may come from a file, an exec plugin or an identity provider."""

    def __init__(self, paths: str, *, context: str | None, source: str) -> None:
        self._paths = paths
        self._context = context
        self._source = source
        self._configuration = Configuration()
        self._loader: Any = None
        self._loaded_at = 0.0
        self._token_file = False
        self._chain: tuple[str | None, str | None] | None = None
        self.ssl_context: ssl.SSLContext | None = None

    async def load(self) -> Configuration:
        """Read the files and authenticate, from the start."""
        try:
            self._loader = await kube_config.load_kube_config(
                config_file=self._paths,
                context=self._context,
                client_configuration=self._configuration,
                persist_config=False,
            )
            self._token_file = self._reads_token_file()
        except ConfigException as error:
            raise ConfigurationError(f"{self._name()}: {error}") from error
        except yaml.YAMLError as error:
            raise ConfigurationError(f"{self._name()} is not YAML: {' '.join(str(error).split())}") from error
        except OSError as error:
            raise ConfigurationError(f"{self._name()}: {error.strerror or error} ({error.filename})") from error
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            # The loader trusts the shape of the file; on a wrong one it stumbles over whatever it meets first.
            raise ConfigurationError(
                f"{self._name()} is not a valid kubeconfig ({type(error).__name__}: {error}); "
                "check its clusters, users and contexts, for instance with `kubectl config view`"
            ) from error
        self._loaded_at = time.monotonic()
        return self._configuration

    @property
    def context(self) -> Mapping[str, Any]:
        """The context in use."""
        current: Mapping[str, Any] = self._loader.current_context["context"]
        return current

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request, refreshed if they are about to expire."""
        if self._may_expire() and time.monotonic() - self._loaded_at > REFRESH_PERIOD:
            # Set before the await, so that concurrent requests do not all start the plugin.
            self._loaded_at = time.monotonic()
            try:
                await self._loader.load_and_set(self._configuration)
            except (ConfigException, OSError, ValueError) as error:
                raise ConfigurationError(f"{self._name()}: cannot refresh the credentials: {error}") from error
            self.load_certificate()
        authorization = self._configuration.api_key.get("BearerToken")
        return {"Authorization": authorization.strip()} if authorization else {}

    async def renew(self) -> bool:
        """Read the files and authenticate again, after the server refused what we had."""
        before = self._configuration.api_key.get("BearerToken")
        await self.load()
        self.load_certificate()
        return bool(self._configuration.api_key.get("BearerToken") != before)

    def load_certificate(self) -> None:
        """Give the client certificate to the TLS context, where it serves the connections from now on."""
        certificate = self._configuration.cert_file
        chain = (certificate, self._configuration.key_file)
        if self.ssl_context is not None and certificate and chain != self._chain:
            try:
                self.ssl_context.load_cert_chain(certificate, chain[1])
            except (OSError, ssl.SSLError) as error:
                raise ConfigurationError(f"{self._name()}: the client certificate is unusable: {error}") from error
            self._chain = chain

    def _may_expire(self) -> bool:
        """Whether loading again may give other credentials; an exec plugin without an expiry runs once (KEP-541)."""
        if hasattr(self._loader, "exec_plugin_expiry") or self._loader.provider:
            return True
        return self._token_file

    def _reads_token_file(self) -> bool:
        """Whether the user of the context has a token file; the first file that defines a user wins."""
        for path in filter(None, self._paths.split(os.pathsep)):
            file = Path(path).expanduser()
            document = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
            for entry in (document or {}).get("users") or []:
                if entry["name"] == self.context.get("user"):
                    return "tokenFile" in (entry.get("user") or {})
        return False

    def _name(self) -> str:
        return f"kubeconfig {self._paths} (from {self._source})"


class _ServiceAccountCredentials:
    """The token of the pod's service account, which the kubelet rotates in its file."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request; the file is read again once a minute."""
        try:
            authorization = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError) as error:
            raise ConfigurationError(f"the token of the service account cannot be read: {error}") from error
        return {"Authorization": authorization.strip()} if authorization else {}

    async def renew(self) -> bool:
        """The kubelet renews the file; all that can be done is to read it, which `headers` does."""
        return False


async def _from_kubeconfig(paths: str, *, context: str | None, source: str) -> ClusterAccess:
    if not _any_exists(paths):
        raise ConfigurationError(f"kubeconfig {paths} (from {source}) does not exist; {_HINT}")
    credentials = _KubeconfigCredentials(paths, context=context, source=source)
    configuration = await credentials.load()
    access = _access(configuration)
    credentials.ssl_context = access.ssl_context
    credentials.load_certificate()
    access.namespace = credentials.context.get("namespace") or "default"
    access.credentials = credentials
    return access


def _any_exists(paths: str) -> bool:
    return any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path)


def _from_service_account() -> ClusterAccess:
    configuration = Configuration()
    try:
        incluster_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call] # untyped library
        namespace = _NAMESPACE_FILE.read_text(encoding="utf-8").strip() if _NAMESPACE_FILE.exists() else "default"
    except (ConfigException, OSError) as error:
        raise ConfigurationError(
            f"this process seems to run in a pod, but its service account is unusable: {error}; "
            "check automountServiceAccountToken of the pod, or pass --kubeconfig"
        ) from error
    access = _access(configuration)
    access.namespace = namespace or "default"
    access.credentials = _ServiceAccountCredentials(configuration)
    return access


def _access(configuration: Configuration) -> ClusterAccess:
    server = str(configuration.host)
    url = urlsplit(server)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ConfigurationError(f"the server {server!r} of the cluster is not an http or https URL")
    return ClusterAccess(
        server=server.rstrip("/"),
        ssl_context=_ssl_context(configuration) if url.scheme == "https" else None,
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy or _environment_proxy(url.scheme, url.hostname),
    )


def _ssl_context(configuration: Configuration) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the certificate authority {configuration.ssl_ca_cert} is unusable: {error}"
        ) from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _environment_proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that HTTPS_PROXY and NO_PROXY ask for, as kubectl honours them."""
    return None if proxy_bypass(host) else getproxies().get(scheme)
