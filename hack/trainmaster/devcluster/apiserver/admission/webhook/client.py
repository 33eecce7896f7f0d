"""The client of webhooks: one POST over HTTPS for each call; errors have the texts of the API server.

Guarantees:
- a call ends within the webhook's timeout;
- a webhook that answers 429 or 5xx with `Retry-After` is called again after so many seconds, ten times at most, as
  client-go does; what it says in the end counts;
- the certificate of the other side is verified, against the bundle of the webhook if it has one;
- connections are kept and used again; one that the other side closed while it was idle does not fail a call.

The embedded cluster has no service network. A service resolver knows where the services of webhooks listen: whoever
serves webhooks, such as the embedded manager, registers the address under the name of its service.
"""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_exceptions import ClientConnectorDNSError
from yarl import URL

from trainmaster.devcluster.apiserver.admission.webhook.accessors import WebhookAccessor
from trainmaster.devcluster.apiserver.errors import quote

_HTTPS_PORT = 443


class ServiceUnresolvable(Exception):
    """There is no way to a service; the message says so in the words of the API server."""


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int


class ServiceResolver(Protocol):
    """Finds the address behind a service."""

    def resolve(self, *, namespace: str, name: str, port: int) -> Address:
        """Return where to connect to; raises `ServiceUnresolvable`."""


class LocalServices:
    """Services that listen on this machine."""

    def __init__(self) -> None:
        self._addresses: dict[tuple[str, str, int], Address] = {}

    def register(self, *, namespace: str, name: str, address: str, local_port: int) -> Callable[[], None]:
        """Let `https://name.namespace.svc` lead to an address, instead of any before; returns what ends that."""
        key, target = (namespace, name, _HTTPS_PORT), Address(address, local_port)
        self._addresses[key] = target

        def forget() -> None:
            if self._addresses.get(key) is target:
                del self._addresses[key]

        return forget

    def knows(self, *, namespace: str, name: str) -> bool:
        """Tell whether a service is registered, for whatever port."""
        return any(key[:2] == (namespace, name) for key in self._addresses)

    def resolve(self, *, namespace: str, name: str, port: int) -> Address:
        """Return where a service listens; raises `ServiceUnresolvable`."""
        found = self._addresses.get((namespace, name, port))
        if found is not None:
            return found
        if self.knows(namespace=namespace, name=name):
            raise ServiceUnresolvable(f'no service port {port} found for service "{name}"')
        raise ServiceUnresolvable(f'service "{name}" not found')


_MAX_RESPONSE = 3 * 1024 * 1024
"""The API server's own limit for what it takes."""

_SHOWN_BODY = 2048

_MAX_RETRIES = 10
_SECONDS = re.compile(r"[+-]?[0-9]{1,18}")
"""What client-go takes for a number of seconds; a date in its place is none."""

_VERIFICATION_TEXTS = {
    10: "certificate has expired or is not yet valid",
    9: "certificate has expired or is not yet valid",
    18: "certificate signed by unknown authority",
    19: "certificate signed by unknown authority",
    20: "certificate signed by unknown authority",
    21: "certificate signed by unknown authority",
}
"""By the code of OpenSSL's verification."""

_STATUS_TEXTS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_STATUSES_WITH_TEXT_IN_BODY = frozenset({403, 405, 406, 415, 503})


class CallFailed(Exception):
    """There is no response; the message says why."""


class WebhookClient:
    """The connections to all webhooks; closed by its owner."""

    def __init__(self, services: ServiceResolver) -> None:
        self._services = services
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[bytes, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def call(self, webhook: WebhookAccessor, body: bytes) -> bytes:
        """Return the body of the response; raises `CallFailed`."""
        url = f"{webhook.url if urlsplit(webhook.url).path else webhook.url + '/'}?timeout={webhook.timeout}s"
        try:
            async with asyncio.timeout(webhook.timeout):
                response, content = await self._post(webhook, url, body)
                for _ in range(_MAX_RETRIES):
                    delay = _retry_after(response)
                    if delay is None:
                        break
                    await asyncio.sleep(delay)
                    response, content = await self._post(webhook, url, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ServiceUnresolvable) as error:
            raise CallFailed(f"failed to call webhook: Post {quote(url)}: {connection_error_text(error)}") from error
        if not 200 <= response.status <= 206:
            raise CallFailed(f"failed to call webhook: {_status_error_text(response, content)}")
        if not content:
            kind = response.headers.get("Content-Type", "")
            text = f"0-length response with status code: {response.status} and content type: {kind}"
            raise CallFailed(f"failed to call webhook: {text}")
        return content

    async def _post(self, webhook: WebhookAccessor, url: str, body: bytes) -> tuple[aiohttp.ClientResponse, bytes]:
        try:
            return await self._post_once(webhook, url, body)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # A kept connection was closed from the other side; a webhook may be called twice.
            return await self._post_once(webhook, url, body)

    async def _post_once(self, webhook: WebhookAccessor, url: str, body: bytes) -> tuple[aiohttp.ClientResponse, bytes]:
        target, headers, server_name = URL(url, encoded=True), {"Content-Type": "application/json"}, None
        headers["Accept"] = "application/json, */*"
        if webhook.service is not None:
            service = webhook.service
            address = self._services.resolve(namespace=service.namespace, name=service.name, port=service.port)
            headers["Host"], server_name = f"{service.host}:{service.port}", service.host
            target = target.with_host(address.host).with_port(address.port)
        async with self._connected().post(
            target,
            data=BytesIO(body),
            headers=headers,
            ssl=self._context(webhook.authority),
            server_hostname=server_name,
            allow_redirects=False,
        ) as response:
            content = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                content += chunk
                if len(content) > _MAX_RESPONSE:
                    raise CallFailed(
                        f"failed to call webhook: the answer is larger than {_MAX_RESPONSE} bytes; make it smaller"
                    )
            return response, bytes(content)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), headers={"User-Agent": "kube-apiserver-admission"}
            )
        return self._session

    def _context(self, authority: bytes) -> ssl.SSLContext:
        context = self._contexts.get(authority)
        if context is None:
            try:
                context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
            except (ssl.SSLError, ValueError) as error:
                text = "unable to load root certificates: unable to parse bytes as PEM block"
                raise CallFailed(f"could not get REST client: {text}") from error
            # As in Go: an authority may lack the key identifiers that Python demands since 3.13, or be an intermediate.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            self._contexts[authority] = context
        return context


def _retry_after(response: aiohttp.ClientResponse) -> int | None:
    """Return the seconds after which a webhook wants to be called again; None if it does not."""
    if response.status != 429 and response.status < 500:
        return None
    seconds = response.headers.get("Retry-After", "")
    return int(seconds) if _SECONDS.fullmatch(seconds) else None


def _status_error_text(response: aiohttp.ClientResponse, content: bytes) -> str:
    """Describe an HTTP status that is no success."""
    body = "unknown"
    if response.content_type.startswith("text/"):
        body = content[:_SHOWN_BODY].decode("utf-8", "replace").strip()
    if response.status in _STATUSES_WITH_TEXT_IN_BODY:
        return body
    known = _STATUS_TEXTS.get(response.status)
    if known is not None:
        return known
    if response.status >= 500:
        return f"an error on the server ({quote(body)}) has prevented the request from succeeding"
    return f"the server responded with the status code {response.status} but did not return more information"


def connection_error_text(error: Exception) -> str:
    """Describe an error of a connection, in the words of the API server."""
    match error:
        case TimeoutError():
            return "context deadline exceeded"
        case ServiceUnresolvable():
            return str(error)
        case aiohttp.ClientConnectorCertificateError():
            return _certificate_error_text(error.certificate_error)
        case aiohttp.ClientConnectorSSLError():
            return f"tls: {error.os_error}"
        case ClientConnectorDNSError():
            return f"dial tcp: lookup {error.host}: no such host"
        case aiohttp.ClientConnectorError():
            reason = (error.os_error.strerror or str(error.os_error)).lower()
            if isinstance(error.os_error, ConnectionRefusedError):
                reason = "connection refused"
            return f"dial tcp {error.host}:{error.port}: connect: {reason}"
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case OSError(errno=errno.ECONNRESET):
            return "read: connection reset by peer"
    return str(error) or type(error).__name__


def _certificate_error_text(error: Exception) -> str:
    text = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        text = _VERIFICATION_TEXTS.get(error.verify_code, error.verify_message)
    return f"tls: failed to verify certificate: x509: {text}"
