"""Credentials of a kubeconfig's user; `loader` states the guarantees.

Which of them count, and in which order, is the matter of kubernetes_asyncio. What it does without a limit of time, or
without verifying whom it talks to, is done here instead: token files, exec plugins and identity providers. What it does
not know, impersonation, is done here or refused, never ignored: it takes rights away.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import yaml

from trainmaster.controller.kube.auth.exec import PLUGIN_TIMEOUT, ExecCredential, run_exec_plugin
from trainmaster.controller.kube.auth.kubeconfig import directory_of, read_kubeconfig, read_pem
from trainmaster.controller.kube.auth.kubeconfig_library import ConfigException, ConfigNode, KubeConfigLoader
from trainmaster.controller.kube.auth.oidc import PROVIDER_TIMEOUT, refresh_tokens
from trainmaster.controller.kube.auth.refresh import REFRESH_PERIOD, RefreshingCredentials
from trainmaster.controller.kube.auth.tls import Pem, TlsFiles, tls_context
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.runtime.jsontext import load_json
from trainmaster.runtime.yamltext import YamlError

_EXPIRY_MARGIN: Final = timedelta(seconds=2 * REFRESH_PERIOD)
"""Tokens are replaced that long before they expire; half of it may pass until the next look."""

_LOAD_TIMEOUT: Final = PLUGIN_TIMEOUT + PROVIDER_TIMEOUT


class KubeconfigCredentials(RefreshingCredentials):
    """Credentials of a kubeconfig; they may come from a file, an exec plugin or an identity provider."""

    def __init__(self, paths: str, *, context: str | None, source: str, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._name = f"kubeconfig {paths} (from {source})"
        self._paths = paths
        self._context = context
        self._loader: _Loader
        self._config: RestConfig

    async def load(self) -> Mapping[str, Any]:
        """Read the files and authenticate, from the start; return the fields of the cluster."""
        with self._naming_the_kubeconfig():
            await self._authenticate(self._read())
        fields: Mapping[str, Any] = self._loader.cluster.value
        return fields

    def bind(self, config: RestConfig) -> None:
        """Serve a configuration: with the credentials, the namespace of the context and, for https, a TLS context."""
        config.credentials = self
        config.source = f'{self._name}, context "{self._loader.name}"'
        config.namespace = self._loader.context.get("namespace") or "default"
        self._config = config
        with self._naming_the_kubeconfig():
            self._update_tls()

    def _headers(self) -> Mapping[str, str]:
        return self._loader.headers()

    async def _reload(self) -> bool:
        return await self._renewed(self._loader)

    async def _reload_refused(self) -> bool:
        with self._naming_the_kubeconfig():
            loader = self._read()
        if loader.has_user_of(self._loader):
            # What the provider gave us since is newer than what the file says, but of no use any more.
            loader = self._loader
            loader.forget_id_token()
        return await self._renewed(loader)

    def _read(self) -> _Loader:
        merged = read_kubeconfig(self._paths, context=self._context)
        return _Loader(merged, context=self._context, clock=self._clock)

    async def _renewed(self, loader: _Loader) -> bool:
        before = self._headers(), self._config.ssl_context
        with self._naming_the_kubeconfig():
            await self._authenticate(loader)
            self._update_tls()
        return (self._headers(), self._config.ssl_context) != before

    async def _authenticate(self, loader: _Loader) -> None:
        async with self._clock.timeout(_LOAD_TIMEOUT):
            await loader.authenticate()
        self._loader = loader

    def _update_tls(self) -> None:
        if self._config.server.startswith("https:"):
            self._config.ssl_context = tls_context(self._loader.tls_files())

    @contextmanager
    def _naming_the_kubeconfig(self) -> Iterator[None]:
        """Name the kubeconfig in whatever goes wrong with it."""
        try:
            yield
        except (ConfigException, ConfigurationError) as error:
            raise ConfigurationError(f"{self._name}: {error}") from error
        except (YamlError, yaml.YAMLError) as error:
            raise ConfigurationError(f"{self._name} is not YAML: {' '.join(str(error).split())}") from error
        except TimeoutError as error:
            raise ConfigurationError(f"{self._name}: no credentials within {_LOAD_TIMEOUT:g} s") from error
        except OSError as error:
            raise ConfigurationError(f"{self._name}: {error.strerror or error} ({error.filename})") from error
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            # The loader trusts the shape of the file; on a wrong one it stumbles over whatever it meets first.
            raise ConfigurationError(
                f"{self._name} is not a valid kubeconfig ({type(error).__name__}: {error}); "
                "check its clusters, users and contexts, for instance with `kubectl config view`"
            ) from error


class _Loader(KubeConfigLoader):
    """The loader of the library, with our ways to get credentials; its private names are what it offers to override."""

    def __init__(self, merged: ConfigNode, *, context: str | None, clock: Clock) -> None:
        super().__init__(config_dict=merged, config_base_path=None, active_context=context)
        entry: Any = self.current_context
        self.name = str(entry["name"])
        self.context: Mapping[str, Any] = entry["context"]
        self.cluster = cast("ConfigNode", self._cluster)
        self.user = self._user or ConfigNode("no user", {})
        self.token = ""
        self._clock = clock
        self._plugin: ExecCredential | None = None
        self._user_as_read = copy.deepcopy(self.user.value)
        self._impersonation = _impersonation(self.user.value)

    async def authenticate(self) -> None:
        """Get what is not good any more."""
        await self._load_authentication()

    def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request."""
        authorization = self.token.strip()
        return {**self._impersonation, "Authorization": authorization} if authorization else self._impersonation

    def tls_files(self) -> TlsFiles:
        """Read the authorities of the cluster and the certificate of the user."""
        certificate, key = read_pem(self.user, "client-certificate"), read_pem(self.user, "client-key")
        if self._plugin is not None and self._plugin.certificate:
            certificate = Pem("of the exec plugin", self._plugin.certificate.encode())
            key = Pem("of the exec plugin", self._plugin.key.encode())
        verify = not self.cluster.safe_get("insecure-skip-tls-verify")
        return TlsFiles(read_pem(self.cluster, "certificate-authority"), certificate, key, verify=verify)

    def has_user_of(self, other: _Loader) -> bool:
        """Whether the file says of an OpenID Connect user what it said before."""
        return self.provider == "oidc" and self._user_as_read == other._user_as_read

    def forget_id_token(self) -> None:
        """Have the next load ask the identity provider."""
        self.user.value["auth-provider"]["config"].pop("id-token", None)

    async def load_from_exec_plugin(self) -> bool:
        """Run the plugin, unless what it gave is still good; without an expiry it is until the server refuses it."""
        if self._plugin is None or _expires_soon(self._plugin.expires, self._clock):
            self._plugin = await run_exec_plugin(
                self.user.value["exec"],
                directory=directory_of(self.user),
                cluster=self.cluster.value,
                clock=self._clock,
            )
            if self._plugin.token:
                self.token = f"Bearer {self._plugin.token}"
        return True

    async def _load_oid_token(self) -> str:
        config = self.user.value["auth-provider"].get("config") or {}
        token = config.get("id-token")
        if not token or _expires_soon(_expiry_of(token), self._clock):
            config["id-token"], config["refresh-token"] = await refresh_tokens(config, clock=self._clock)
        self.token = f"Bearer {config['id-token']}"
        return self.token

    def _load_user_token(self) -> bool:
        fields = self.user.value
        token = fields.get("token")
        if file := fields.get("tokenFile"):
            token = (directory_of(self.user) / file).read_text(encoding="utf-8").strip()
        if token:
            self.token = f"Bearer {token}"
        return bool(token)


def _expires_soon(expires: datetime | None, clock: Clock) -> bool:
    return expires is not None and expires - clock.now() < _EXPIRY_MARGIN


def _expiry_of(token: str) -> datetime | None:
    """Read when an id token expires; the server checks its signature."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ConfigurationError("the id-token of the auth provider is not a JSON Web Token")
    claims = load_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    expires = claims.get("exp")
    return datetime.fromtimestamp(expires, UTC) if expires is not None else None


def _impersonation(user: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that ask the server to take us for somebody else."""
    headers = {"Impersonate-User": user.get("as"), "Impersonate-Uid": user.get("as-uid")}
    lists = {"Impersonate-Group": user.get("as-groups")}
    for name, values in (user.get("as-user-extra") or {}).items():
        lists[f"Impersonate-Extra-{name}"] = values
    for name, values in lists.items():
        if values and len(values) > 1:
            raise ConfigurationError(
                f"impersonation with several values of {name} is not supported; name one, or bind the role to the user"
            )
        headers[name] = values[0] if values else None
    return {name: str(value) for name, value in headers.items() if value}
