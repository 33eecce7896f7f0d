"""The cluster and the user of a kubeconfig; `loader` states the guarantees.

kubernetes_asyncio merges the files and knows their fields. It stumbles over files that are empty, and tells of parts
that are missing in terms of its own: `read_kubeconfig` names the part. What it does without a limit of time, or without
verifying whom it talks to, is done here instead: token files, exec plugins and identity providers. What it does not
know, impersonation, is done here or refused, never ignored: it takes rights away.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import yaml

from trainmaster.controller.kube.auth.exec import PLUGIN_TIMEOUT, ExecCredential, run_exec_plugin
from trainmaster.controller.kube.auth.kubeconfig_fields import WRITE_AGAIN, check_fields
from trainmaster.controller.kube.auth.kubeconfig_library import (
    ConfigException,
    ConfigNode,
    Configuration,
    FileOrData,
    KubeConfigLoader,
    KubeConfigMerger,
)
from trainmaster.controller.kube.auth.oidc import PROVIDER_TIMEOUT, refresh_tokens
from trainmaster.controller.kube.auth.refresh import REFRESH_PERIOD, RefreshingCredentials
from trainmaster.controller.kube.auth.tls import TlsFiles, TlsReloader
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.runtime.jsontext import load_json
from trainmaster.runtime.yamltext import YamlError, load_yaml

_EXPIRY_MARGIN: Final = timedelta(seconds=2 * REFRESH_PERIOD)
"""Tokens are replaced that long before they expire; half of it may pass until the next look."""

_LOAD_TIMEOUT: Final = PLUGIN_TIMEOUT + PROVIDER_TIMEOUT


class KubeconfigCredentials(RefreshingCredentials):
    """Credentials of a kubeconfig; they may come from a file, an exec plugin or an identity provider."""

    def __init__(self, paths: str, *, context: str | None, source: str, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.configuration: Configuration
        self._name = f"kubeconfig {paths} (from {source})"
        self._paths = paths
        self._context = context
        self._loader: _Loader
        self._config: RestConfig | None = None
        self._tls: TlsReloader | None = None

    async def load(self) -> None:
        """Read the files and authenticate, from the start."""
        with self._naming_the_kubeconfig():
            await self._authenticate(self._read())

    def bind(self, config: RestConfig) -> None:
        """Serve a configuration: with the credentials, the namespace of the context and, for https, a TLS context."""
        config.credentials = self
        config.source = f'{self._name}, context "{self._loader.name}"'
        config.namespace = self._loader.context.get("namespace") or "default"
        self._config = config
        if config.server.startswith("https:"):
            with self._naming_the_kubeconfig():
                self._tls = TlsReloader(self._tls_files())
            config.ssl_context = self._tls.context

    def _headers(self) -> Mapping[str, str]:
        headers = dict(self._loader.impersonation)
        if authorization := self.configuration.api_key.get("BearerToken"):
            headers["Authorization"] = authorization.strip()
        return headers

    async def _reload(self) -> bool:
        before = self._headers()
        with self._naming_the_kubeconfig():
            await self._authenticate(self._loader)
        return self._reload_certificates() or self._headers() != before

    async def _reload_refused(self) -> bool:
        before = self._headers()
        with self._naming_the_kubeconfig():
            loader = self._read()
            if loader.has_user_of(self._loader):
                # What the provider gave us since is newer than what the file says, but of no use any more.
                loader = self._loader
                loader.forget_id_token()
            await self._authenticate(loader)
        return self._reload_certificates() or self._headers() != before

    def _read(self) -> _Loader:
        merged = read_kubeconfig(self._paths, context=self._context)
        return _Loader(merged, context=self._context, clock=self._clock)

    async def _authenticate(self, loader: _Loader) -> None:
        configuration = Configuration()
        async with self._clock.timeout(_LOAD_TIMEOUT):
            await loader.load_and_set(configuration)
        self._loader, self.configuration = loader, configuration

    def _reload_certificates(self) -> bool:
        if self._tls is None or self._config is None:
            return False
        with self._naming_the_kubeconfig():
            changed = self._tls.reload(self._tls_files())
        self._config.ssl_context = self._tls.context
        return changed

    def _tls_files(self) -> TlsFiles:
        return TlsFiles(
            authorities=self.configuration.ssl_ca_cert,
            certificate=self.configuration.cert_file,
            key=self.configuration.key_file,
            verify=self.configuration.verify_ssl,
        )

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

    cert_file: str | None
    key_file: str | None

    def __init__(self, merged: Any, *, context: str | None, clock: Clock) -> None:
        super().__init__(config_dict=merged, config_base_path=None, active_context=context)
        if self._user is None:  # the library reads from it all the same
            self._user = ConfigNode("no user", {})
        self._clock = clock
        self._plugin: ExecCredential | None = None
        self._user_as_read = copy.deepcopy(self._user_fields)
        self.impersonation = _impersonation(self._user_fields)

    @property
    def name(self) -> str:
        """The name of the context in use."""
        return str(cast("Any", self.current_context)["name"])

    @property
    def context(self) -> Mapping[str, Any]:
        """The context in use."""
        context: Mapping[str, Any] = cast("Any", self.current_context)["context"]
        return context

    @property
    def _user_fields(self) -> dict[str, Any]:
        return self._user.value if self._user is not None and isinstance(self._user.value, dict) else {}

    @property
    def _directory(self) -> Path:
        """Where the file lies that names the user; its relative paths begin there."""
        return Path(self._get_base_path(self._user.path if self._user is not None else None))

    def has_user_of(self, other: _Loader) -> bool:
        """Whether the file says of an OpenID Connect user what it said before."""
        return self.provider == "oidc" and self._user_as_read == other._user_as_read

    def forget_id_token(self) -> None:
        """Have the next load ask the identity provider."""
        self._user_fields["auth-provider"]["config"].pop("id-token", None)

    async def load_from_exec_plugin(self) -> bool:
        """Run the plugin, unless what it gave is still good; without an expiry it is until the server refuses it."""
        if self._plugin is None or _expires_soon(self._plugin.expires, self._clock):
            self._plugin = await run_exec_plugin(
                self._user_fields["exec"],
                directory=self._directory,
                cluster=cast("Any", self._cluster).value,
                clock=self._clock,
            )
            if self._plugin.token:
                self.token = f"Bearer {self._plugin.token}"
            if self._plugin.certificate:
                self.cert_file = _as_file(self._plugin.certificate)
                self.key_file = _as_file(self._plugin.key)
        return True

    async def _load_oid_token(self) -> str:
        config = self._user_fields["auth-provider"].get("config") or {}
        token = config.get("id-token")
        if not token or _expires_soon(_expiry_of(token), self._clock):
            config["id-token"], config["refresh-token"] = await refresh_tokens(config, clock=self._clock)
        self.token = f"Bearer {config['id-token']}"
        return self.token

    def _load_user_token(self) -> bool:
        fields = self._user_fields
        token = fields.get("token")
        if file := fields.get("tokenFile"):
            token = (self._directory / file).read_text(encoding="utf-8").strip()
        if token:
            self.token = f"Bearer {token}"
        return bool(token)


def _as_file(content: str) -> str | None:
    return FileOrData({"content": content}, None, data_key_name="content", base64_file_content=False).as_file()


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


_REMEDY: Final = "have the tool that made the cluster write it again, or name another with --kubeconfig or KUBECONFIG"
_CHOOSE: Final = "choose one with `kubectl config use-context`"


def read_kubeconfig(paths: str, *, context: str | None) -> ConfigNode:
    """Read and merge files.

    Args:
        paths: The files, separated as in `$KUBECONFIG`.
        context: The context that will be used; None: their current one.

    Raises:
        ConfigurationError: They hold nothing, or nothing to use in that context.
    """
    merged: ConfigNode | None = _Merger(paths).config
    if merged is None:
        raise ConfigurationError(f"there is nothing in it; {_REMEDY}")
    _check(merged.value, context=context)
    return merged


class _Merger(KubeConfigMerger):
    """Takes an empty file for one without entries, as kubectl does, which leaves such files behind."""

    def load_config(self, path: str) -> None:
        document = load_yaml(Path(path).read_bytes())
        if isinstance(document, dict):
            check_fields(document, path=path)
            super().load_config(path)
        elif document is not None:
            raise ConfigurationError(f"{path} is no kubeconfig, which is a mapping with clusters, users and contexts")


def _check(config: Mapping[str, Any], *, context: str | None) -> None:
    """Refuse parts that name others which are not there."""
    clusters, contexts, users = (_by_name(config[part]) for part in ("clusters", "contexts", "users"))
    if not clusters:
        raise ConfigurationError(f"it names no cluster; {_REMEDY}")
    if not contexts:
        raise ConfigurationError(
            f"it has no context; add one with `kubectl config set-context`, for one of: {', '.join(clusters)}"
        )
    current = config.get("current-context")
    name = context or current
    if not name:
        raise ConfigurationError(f"no current-context is set; {_CHOOSE}: {_listed(contexts)}")
    if name not in contexts:
        problem = "" if context else f", its current-context; {_CHOOSE}"
        raise ConfigurationError(f"it has no context {name!r}{problem}{':' if problem else ';'} {_listed(contexts)}")
    chosen = _content(contexts[name], "context")
    if not chosen.safe_get("cluster"):
        raise ConfigurationError(f"its context {name!r} names no cluster; {_listed(clusters)}")
    for part, known in (("cluster", clusters), ("user", users)):
        wanted = chosen.safe_get(part)
        if wanted and wanted not in known:
            raise ConfigurationError(
                f"its context {name!r} is of {part} {wanted!r}, which is missing; {_listed(known)}"
            )
        if wanted:
            _content(known[wanted], part)


def _content(entry: Any, kind: str) -> Any:
    """Return what an entry is about."""
    if entry.safe_get(kind) is None:
        raise ConfigurationError(
            f"in {entry.path}, the entry of {kind} {entry['name']!r} has no field {kind!r}; add it, or {WRITE_AGAIN}"
        )
    return entry[kind]


def _by_name(entries: Sequence[ConfigNode]) -> dict[str, Any]:
    return {str(entry["name"]): entry for entry in entries}


def _listed(names: Mapping[str, Any]) -> str:
    return f"it has: {', '.join(names) or 'none'}"
