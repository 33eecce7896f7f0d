"""What the user of a kubeconfig is known by: a token, a password, a certificate, or whatever gives one of them."""

from __future__ import annotations

import base64
import copy
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.kube.auth.data_files import data_file
from trainmaster.controller.kube.auth.exec import ExecCredential, run_exec_plugin
from trainmaster.controller.kube.auth.kubeconfig_files import Entry, KubeconfigContext
from trainmaster.controller.kube.auth.oidc import refresh_tokens
from trainmaster.controller.kube.auth.refresh import REFRESH_PERIOD
from trainmaster.controller.kube.auth.tls import TlsFiles
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.runtime.jsontext import load_json

_EXPIRY_MARGIN: Final = timedelta(seconds=2 * REFRESH_PERIOD)
"""Tokens are replaced that long before they expire; half of it may pass until the next look."""


class KubeconfigUser:
    """The user of a context; `authenticate` gets credentials, and gets them again as long as they are good."""

    def __init__(self, read: KubeconfigContext, *, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._plugin: ExecCredential | None = None
        self._fields = copy.deepcopy(read.user.fields) if read.user is not None else {}
        self._impersonation = _impersonation(self._fields)
        self._authorization = ""

    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        headers = dict(self._impersonation)
        if self._authorization:
            headers["Authorization"] = self._authorization
        return headers

    def tls_files(self) -> TlsFiles:
        """What connections to the cluster are made of."""
        cluster, user, plugin = self._read.cluster, self._read.user, self._plugin
        certificate, key = _file(user, "client-certificate"), _file(user, "client-key")
        if plugin is not None and plugin.certificate:
            certificate, key = data_file(plugin.certificate.encode()), data_file(plugin.key.encode())
        return TlsFiles(
            authorities=_file(cluster, "certificate-authority"),
            certificate=certificate,
            key=key,
            verify=not cluster.fields.get("insecure-skip-tls-verify"),
        )

    def is_that_of(self, other: KubeconfigUser) -> bool:
        """Whether the files say of an OpenID Connect user what they said before."""
        return "auth-provider" in self._fields and self._read.user == other._read.user

    def forget_id_token(self) -> None:
        """Have `authenticate` ask the identity provider."""
        self._fields["auth-provider"]["config"].pop("id-token", None)

    async def authenticate(self) -> None:
        """Get a token or a certificate, from wherever the kubeconfig says.

        Raises:
            ConfigurationError: Who gives it does not.
            OSError: Its file cannot be read.
        """
        fields = self._fields
        if fields.get("auth-provider"):
            self._authorization = f"Bearer {await self._id_token(fields['auth-provider'])}"
        elif fields.get("exec"):
            token = (await self._run_plugin(fields["exec"])).token
            self._authorization = f"Bearer {token}" if token else ""
        elif token := self._token():
            self._authorization = f"Bearer {token}"
        elif fields.get("username") and fields.get("password"):
            pair = f"{fields['username']}:{fields['password']}"
            self._authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"

    async def _id_token(self, provider: Mapping[str, Any]) -> str:
        if provider.get("name") != "oidc":
            raise ConfigurationError(
                f"the auth provider {provider.get('name')!r} of the user is not supported, as it is not by "
                "kubectl since 1.26; have the tool of your cloud write a user with an exec plugin"
            )
        config = provider.get("config") or {}
        token = config.get("id-token")
        if not token or _expires_soon(_expiry_of(token), self._clock):
            config["id-token"], config["refresh-token"] = await refresh_tokens(config, clock=self._clock)
        return str(config["id-token"])

    async def _run_plugin(self, config: Mapping[str, Any]) -> ExecCredential:
        """Run the plugin, unless what it gave is still good; without an expiry it is until the server refuses it."""
        if self._plugin is None or _expires_soon(self._plugin.expires, self._clock):
            self._plugin = await run_exec_plugin(
                config, directory=self._directory, cluster=self._read.cluster.fields, clock=self._clock
            )
        return self._plugin

    def _token(self) -> str:
        file = self._fields.get("tokenFile")
        text = (self._directory / file).read_text(encoding="utf-8") if file else str(self._fields.get("token") or "")
        return text.strip()

    @property
    def _directory(self) -> Path:
        return (self._read.user or self._read.context).directory


def _file(entry: Entry | None, field: str) -> str | None:
    """Return the file of a field; data in the kubeconfig itself count more."""
    if entry is None:
        return None
    if data := entry.fields.get(f"{field}-data"):
        return data_file(base64.b64decode(data))
    file = entry.fields.get(field)
    return os.path.normpath(entry.directory / file) if file else None


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
