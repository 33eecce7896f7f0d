"""The service account of a pod: a token, an authority and a namespace, in files that the kubelet replaces.

`loader` states the guarantees.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainmaster.controller.kube.auth.refresh import RefreshingCredentials
from trainmaster.controller.kube.auth.tls import Pem, TlsFiles, tls_context
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts it."""


class ServiceAccountCredentials(RefreshingCredentials):
    """The token and the authority of a mounted service account."""

    def __init__(self, directory: Path, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._directory = directory
        self._token = self._read_token()
        self._config: RestConfig

    def bind(self, config: RestConfig) -> None:
        """Serve a configuration: with the credentials, the TLS context and the namespace of the pod."""
        namespace = self._directory / "namespace"
        config.namespace = (namespace.read_text(encoding="utf-8").strip() if namespace.exists() else "") or "default"
        config.credentials = self
        config.source = f"the service account in {self._directory}"
        config.ssl_context = self._context()
        self._config = config

    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    async def _reload(self) -> bool:
        config, before = self._config, (self._token, self._config.ssl_context)
        self._token, config.ssl_context = self._read_token(), self._context()
        return (self._token, config.ssl_context) != before

    def _context(self) -> ssl.SSLContext:
        try:
            return tls_context(TlsFiles(Pem.read(self._directory / "ca.crt")))
        except ConfigurationError as error:
            raise _unusable(error) from error

    def _read_token(self) -> str:
        path = self._directory / "token"
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise _unusable(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        if not token:
            raise _unusable(f"{path} is empty")
        return token


def _unusable(reason: object) -> ConfigurationError:
    return ConfigurationError(
        f"this process seems to run in a pod, but its service account is unusable: {reason}; "
        "check automountServiceAccountToken of the pod, or pass --kubeconfig"
    )
