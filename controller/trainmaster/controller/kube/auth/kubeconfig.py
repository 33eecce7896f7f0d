"""The cluster and the user of a kubeconfig; `loader` states the guarantees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from trainmaster.controller.kube.auth.exec import PLUGIN_TIMEOUT
from trainmaster.controller.kube.auth.kubeconfig_files import KubeconfigContext, read_kubeconfig
from trainmaster.controller.kube.auth.kubeconfig_user import KubeconfigUser
from trainmaster.controller.kube.auth.oidc import PROVIDER_TIMEOUT
from trainmaster.controller.kube.auth.refresh import RefreshingCredentials
from trainmaster.controller.kube.auth.tls import TlsReloader
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.runtime.yamltext import YamlError

_LOAD_TIMEOUT: Final = PLUGIN_TIMEOUT + PROVIDER_TIMEOUT


class KubeconfigCredentials(RefreshingCredentials):
    """Credentials of a kubeconfig; they may come from a file, an exec plugin or an identity provider."""

    def __init__(self, paths: str, *, context: str | None, source: str, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._name = f"kubeconfig {paths} (from {source})"
        self._paths = paths
        self._context = context
        self._read: KubeconfigContext
        self._user: KubeconfigUser
        self._config: RestConfig | None = None
        self._tls: TlsReloader | None = None

    async def load(self) -> Mapping[str, Any]:
        """Read the files and authenticate, from the start; returns what they say of the cluster."""
        with self._naming_the_kubeconfig():
            self._read = read_kubeconfig(self._paths, context=self._context)
            await self._authenticate(KubeconfigUser(self._read, clock=self._clock))
        return self._read.cluster.fields

    def bind(self, config: RestConfig) -> None:
        """Serve a configuration: with the credentials, the namespace of the context and, for https, a TLS context."""
        config.credentials = self
        config.source = f'{self._name}, context "{self._read.context.name}"'
        config.namespace = self._read.context.fields.get("namespace") or "default"
        self._config = config
        if config.server.startswith("https:"):
            with self._naming_the_kubeconfig():
                self._tls = TlsReloader(self._user.tls_files())
            config.ssl_context = self._tls.context

    def _headers(self) -> Mapping[str, str]:
        return self._user.headers()

    async def _reload(self) -> bool:
        before = self._headers()
        with self._naming_the_kubeconfig():
            await self._authenticate(self._user)
        return self._reload_certificates() or self._headers() != before

    async def _reload_refused(self) -> bool:
        before = self._headers()
        with self._naming_the_kubeconfig():
            user = KubeconfigUser(read_kubeconfig(self._paths, context=self._context), clock=self._clock)
            if user.is_that_of(self._user):
                # What the provider gave us since is newer than what the file says, but of no use any more.
                user = self._user
                user.forget_id_token()
            await self._authenticate(user)
        return self._reload_certificates() or self._headers() != before

    async def _authenticate(self, user: KubeconfigUser) -> None:
        async with self._clock.timeout(_LOAD_TIMEOUT):
            await user.authenticate()
        self._user = user

    def _reload_certificates(self) -> bool:
        if self._tls is None or self._config is None:
            return False
        with self._naming_the_kubeconfig():
            changed = self._tls.reload(self._user.tls_files())
        self._config.ssl_context = self._tls.context
        return changed

    @contextmanager
    def _naming_the_kubeconfig(self) -> Iterator[None]:
        """Name the kubeconfig in whatever goes wrong with it."""
        try:
            yield
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._name}: {error}") from error
        except YamlError as error:
            raise ConfigurationError(f"{self._name} is not YAML: {' '.join(str(error).split())}") from error
        except TimeoutError as error:
            raise ConfigurationError(f"{self._name}: no credentials within {_LOAD_TIMEOUT:g} s") from error
        except OSError as error:
            raise ConfigurationError(f"{self._name}: {error.strerror or error} ({error.filename})") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Of the right type, yet no base64, no claims of a token or no UTF-8.
            raise ConfigurationError(
                f"{self._name} is not a valid kubeconfig ({type(error).__name__}: {error}); "
                "check its clusters, users and contexts, for instance with `kubectl config view`"
            ) from error
