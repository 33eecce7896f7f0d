"""Where the command reads the history: from a manager, on the way that leads to it, or from its file.

A manager is reached by its URL, by the proxy of the API server for Services, or, that of an embedded cluster, where the
cluster says. The proxy keeps the header `Authorization` to itself, so the token goes in another one as well: the API
server, which knows the token anyway, passes it on to the manager, which asks the API server whose it is.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

from trainmaster.controller.cli.cluster import manager_status
from trainmaster.controller.history.query import PATH, InvalidQuery, Query, read_query
from trainmaster.controller.history.record import JobRecord, read_record
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.history.store import HistoryUnavailable
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import FORWARDED_AUTHORIZATION
from trainmaster.controller.manager.roles import NAME
from trainmaster.controller.server.authentication import bearer_token
from trainmaster.runtime.jsontext import JsonError, load_json

SERVICE: Final = f"kubeflow/{NAME}"
"""Where our manifests install it."""

_TIMEOUT: Final = 60.0
_OF_GONE_TIMEOUT: Final = 5.0
"""Seconds: mostly the name is misspelt, or nobody records a history."""

_LONGEST: Final = 64 * 1024 * 1024
_SHOWN: Final = 300


class SourceError(Exception):
    """The history cannot be read there; the text says why, and what to do."""


class Source(Protocol):
    """A history."""

    async def find(self, parameters: Mapping[str, str]) -> list[JobRecord]:
        """Return the jobs that some parameters ask for (see `controller.history.query`), at most as many as they say.

        Raises:
            InvalidQuery: A parameter is wrong.
            SourceError: The history cannot be read.
            HistoryUnavailable: Its file cannot be read.
        """

    async def get(self, uid: str) -> JobRecord | None:
        """Return all that is recorded of a job; errors as of `find`."""


class FileSource:
    """A file of SQLite that no manager needs to serve."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SourceError(f"{path} is no file; name that of history.file, on the machine on which it is")
        self._store = sqlite_store(path, read_only=True)

    async def find(self, parameters: Mapping[str, str]) -> list[JobRecord]:
        """Return jobs."""
        query: Query = read_query(parameters, now=datetime.now(UTC))
        records, _ = await asyncio.to_thread(self._store.find, query)
        return records

    async def get(self, uid: str) -> JobRecord | None:
        """Return a job."""
        return await asyncio.to_thread(self._store.get, uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSource:
    """A manager that serves it."""

    url: str
    """Of the manager, up to where the path of the history begins."""

    headers: Mapping[str, str] = field(default_factory=dict)
    ssl_context: ssl.SSLContext | bool = True
    server_hostname: str | None = None
    proxy: str | None = None
    remedy: str = "name another place with --url or --file"
    """What to do if nobody answers there."""

    async def find(self, parameters: Mapping[str, str]) -> list[JobRecord]:
        """Return jobs."""
        found = await self._get(PATH, parameters)
        try:
            return [read_record(each) for each in found["items"]]
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{self.url} answers something that is no history; {self.remedy}") from error

    async def get(self, uid: str) -> JobRecord | None:
        """Return a job."""
        found = await self._get(f"{PATH}/{quote(uid, safe='')}", {}, absent_is_none=True)
        try:
            return None if found is None else read_record(found)
        except ValueError as error:
            raise SourceError(f"{self.url} answers something that is no history; {self.remedy}") from error

    async def _get(self, path: str, parameters: Mapping[str, str], *, absent_is_none: bool = False) -> Any:
        import aiohttp  # noqa: PLC0415 - a deleted job is explained without it

        url = self.url.rstrip("/") + path
        options: dict[str, Any] = {"ssl": self.ssl_context, "proxy": self.proxy}
        if self.server_hostname:
            options["server_hostname"] = self.server_hostname
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT)) as session,
                session.get(
                    url, params=dict(parameters), headers=dict(self.headers), allow_redirects=False, **options
                ) as answer,
            ):
                status, body = answer.status, await answer.content.read(_LONGEST)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise SourceError(f"the history cannot be read at {url}: {reason}; {self.remedy}") from error
        try:
            found = load_json(body)
        except JsonError:
            found = None
        told = found.get("error") if isinstance(found, dict) else None
        if status == 404 and absent_is_none and told:
            return None
        if status != 200 or found is None:
            text = str(told or (found or {}).get("message") or body[:_SHOWN].decode(errors="replace").strip())
            raise SourceError(f"the history cannot be read at {url}: {_reason(status, text)}")
        return found


def _reason(status: int, text: str) -> str:
    if status == 401:
        return "the token is not good, or there is none; give one with --token-file (kubectl create token NAME)"
    if status == 403:
        return f"{text or 'forbidden'}; docs/history.md says which rights it takes"
    if status == 404:
        return "nobody serves it there; is history.enabled set in the configuration of the manager?"
    return text or f"status {status}"


def by_url(url: str, *, token: str, authority: Path | None) -> HttpSource:
    """Return the manager of a URL.

    `authority` has the certificates by which it is known; None: those of the system.

    Raises:
        SourceError: It is no URL, or there are no such certificates.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SourceError(f"--url {url!r} is no URL; give that of the metrics of the manager, https://HOST:8443 say")
    context: ssl.SSLContext | bool = True
    if authority is not None:
        try:
            context = ssl.create_default_context(cafile=authority)
        except (OSError, ssl.SSLError) as error:
            raise SourceError(f"--certificate-authority {authority} cannot be read: {error}") from error
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    remedy = "is it the address of the manager's metrics, and --certificate-authority that of its certificate?"
    return HttpSource(url=url, headers=headers, ssl_context=context, remedy=remedy)


async def of_cluster(client: KubeClient, *, service: str, token: str) -> HttpSource:
    """Return the manager of a cluster.

    `service` is `NAMESPACE/NAME` or `NAMESPACE/NAME:PORT`. Without `token` the manager is asked as the cluster is.

    Raises:
        SourceError: It is none, or there is no token.
        KubeError: The cluster cannot be asked.
    """
    config = client.config
    headers = dict(await config.headers())
    token = token or bearer_token(headers.get("Authorization"))
    embedded = await manager_status(client)
    if embedded is not None:
        url = str(embedded.get("metrics") or "").removesuffix("/metrics")
        if not url:
            raise SourceError("the manager of this embedded cluster serves no metrics, and so no history")
        return HttpSource(
            url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            ssl_context=False,  # on this machine, with a certificate that nobody has signed
            remedy="`trainmaster cluster status` tells how the manager is",
        )
    namespace, slash, name = service.partition("/")
    name, _, port = name.partition(":")
    if not slash or not namespace or not name:
        raise SourceError(f"--service {service!r} is no Service of a manager; write NAMESPACE/NAME")
    if not token:
        raise SourceError(
            "the kubeconfig has no token that a manager could ask the API server about (it uses a certificate); give "
            "one with --token-file (kubectl create token NAME), or read another place with --url or --file"
        )
    path = f"/api/v1/namespaces/{quote(namespace)}/services/https:{quote(name)}:{quote(port or 'metrics')}/proxy"
    return HttpSource(
        url=config.server.rstrip("/") + path,
        headers={**headers, FORWARDED_AUTHORIZATION: f"Bearer {token}"},
        ssl_context=config.ssl_context if config.ssl_context is not None else True,
        server_hostname=config.server_hostname,
        proxy=config.proxy,
        remedy="does the Service of --service exist, and may you `get` its `services/proxy`?",
    )


async def last_recorded(client: KubeClient, namespace: str, name: str) -> JobRecord | None:
    """Return what is recorded of the job of a name that ended last; None if nothing is, or nobody says."""
    try:
        async with asyncio.timeout(_OF_GONE_TIMEOUT):
            source = await of_cluster(client, service=SERVICE, token="")
            found = await source.find({"namespace": namespace, "name": name, "limit": "1"})
            return (await source.get(found[0].uid) or found[0]) if found else None
    except (SourceError, HistoryUnavailable, InvalidQuery, KubeError, TimeoutError):
        return None
