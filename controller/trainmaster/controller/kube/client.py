"""Requests to the API server: JSON in, JSON out, every failure a `KubeError`.

Guarantees:
- Every request has a timeout and a ceiling for its answer; every watch has a timeout for opening and an inactivity
  limit.
- T-4: watches have their own connections, so that they cannot starve requests.
- T-3, R-33: an answer 429 or 503 with Retry-After is tried again after that time, whatever the verb. A failed
  connection is tried again for reads and for writes that may be repeated (apply, delete by UID); a connection that was
  never made, for all. The number of tries is bounded.
- Below that, aiohttp sends a GET, PUT or DELETE once more if its connection breaks before an answer. The resource
  version makes that harmless for a PUT, the UID for a DELETE: give one.
- A 401 renews the credentials and tries once more.
- A-1: apply sends the full intent with a field manager; C-10: delete can be bound to a UID and a resource version.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
import structlog
import tenacity

from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.configuration import ClusterAccess
from trainmaster.controller.kube.errors import (
    ApiError,
    KubeError,
    MalformedResponse,
    NotConnected,
    RequestTimeout,
    ResponseTooLarge,
    StreamBroken,
    TransportError,
    Unauthorized,
    from_response,
    shorten,
)
from trainmaster.controller.kube.resources import Resource
from trainmaster.controller.kube.watching import INACTIVITY_LIMIT, WatchStream
from trainmaster.metrics import client as metrics
from trainmaster.runtime.jsontree import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

log = structlog.get_logger(__name__)

RESPONSE_LIMIT: Final = 512 * 2**20
"""An unpaged list of 50,000 objects of 10 KiB; beyond it the server is not one of ours."""

_ERROR_BODY_LIMIT: Final = 2**20
_CONNECT_TIMEOUT: Final = 10.0
_RETRY_AFTER_AT_MOST: Final = 60.0
_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE_PATCH: Final = "application/merge-patch+json"


class KubeClient:
    """A client of one cluster; an async context manager that owns its connections."""

    def __init__(
        self,
        access: ClusterAccess,
        *,
        user_agent: str,
        timeout: float = 30.0,
        tries: int = 5,
        connections: int = 100,
        inactivity_limit: float = INACTIVITY_LIMIT,
        response_limit: int = RESPONSE_LIMIT,
        clock: Clock | None = None,
    ) -> None:
        self.access = access
        self._user_agent = user_agent
        self._timeout = timeout
        self._tries = tries
        self._connections = connections
        self._inactivity_limit = inactivity_limit
        self._response_limit = response_limit
        self._clock = clock or SystemClock()
        self._host = urlsplit(access.server).netloc
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._requests = self._session(limit=self._connections)
        self._watches = self._session(limit=0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()
        self._requests = self._watches = None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """Read one object."""
        return await self._object("GET", resource.path(namespace, name), repeatable=True)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
    ) -> JsonObject:
        """Read a collection, or one page of it; the answer is the list object with `items` and `metadata`."""
        params = _params(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=limit,
            resourceVersion=resource_version,
        ) | _params(**{"continue": continue_token})
        return await self._object("GET", resource.path(namespace), params=params, repeatable=True)

    async def create(
        self, resource: Resource, obj: JsonObject, *, namespace: str | None = None, field_manager: str | None = None
    ) -> JsonObject:
        """Create an object; `namespace` is needed only where its metadata does not name one."""
        namespace = namespace or obj.get("metadata", {}).get("namespace")
        if resource.namespaced and not namespace:
            raise ValueError(f"creating one of {resource.name} needs a namespace")
        return await self._object(
            "POST", resource.path(namespace), params=_params(fieldManager=field_manager), body=obj
        )

    async def update(self, resource: Resource, obj: JsonObject, *, subresource: str | None = None) -> JsonObject:
        """Replace an object; its resource version guards against overwriting a newer one."""
        return await self._object("PUT", _path_of(resource, obj, subresource), body=obj)

    async def apply(
        self,
        resource: Resource,
        obj: JsonObject,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> JsonObject:
        """Apply an object on the server: the full set of fields that `field_manager` wants to own."""
        return await self._object(
            "PATCH",
            _path_of(resource, obj, subresource),
            params=_params(fieldManager=field_manager, force="true" if force else None),
            body=obj,
            content_type=_APPLY,
            repeatable=True,
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        content_type: str = _MERGE_PATCH,
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> JsonObject:
        """Patch an object."""
        return await self._object(
            "PATCH",
            resource.path(namespace, name, subresource),
            params=_params(fieldManager=field_manager),
            body=patch,
            content_type=content_type,
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        propagation: str = "Background",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> JsonObject:
        """Delete an object, if it is still the one of that UID and resource version; returns it or a `Status`."""
        preconditions = _params(uid=uid, resourceVersion=resource_version)
        body: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if preconditions:
            body["preconditions"] = preconditions
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return await self._object("DELETE", resource.path(namespace, name), body=body, repeatable=uid is not None)

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: float,
        bookmarks: bool = True,
        send_initial_events: bool = False,
    ) -> AsyncIterator[WatchStream]:
        """Open a watch; with `send_initial_events` it starts with the present state (R-2)."""
        params = _params(
            watch="true",
            resourceVersion=resource_version or None,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=int(timeout_seconds),
            allowWatchBookmarks="true" if bookmarks else None,
            sendInitialEvents="true" if send_initial_events else None,
            resourceVersionMatch="NotOlderThan" if send_initial_events else None,
        )
        async with self.stream(resource.path(namespace), params, accept=_JSON) as chunks:
            yield WatchStream(chunks, clock=self._clock, inactivity_limit=self._inactivity_limit)

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "*/*"
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream of bytes, for instance the log of a pod; only its opening has a timeout."""
        session = _open(self._watches)
        with _transport_errors("GET", self._url(path)):
            async with self._clock.timeout(self._timeout):
                response = await self._send(session, "GET", path, params=params, accept=accept)
        try:
            if response.status >= 400:
                raise await self._error(response)
            yield self._chunks(response)
        finally:
            # Not release(): that would wait for the rest of a stream that nobody reads any more.
            response.close()

    async def raw(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request as it is and return the answer as it is, refusals included; no retries."""
        session = _open(self._requests)
        with _transport_errors(method, self._url(path)):
            async with self._clock.timeout(self._timeout):
                response = await self._send(
                    session, method, path, params=params, body=body, content_type=content_type, accept=accept
                )
                async with response:
                    return response.status, response.headers, await self._read(response)

    async def _object(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        repeatable: bool = False,
    ) -> JsonObject:
        """Send a request, with retries, and decode the object that answers it."""
        encoded = None if body is None else orjson.dumps(body)
        retrying = tenacity.AsyncRetrying(
            sleep=self._clock.sleep,
            stop=tenacity.stop_after_attempt(self._tries),
            retry=tenacity.retry_if_exception(lambda error: _worth_a_retry(error, repeatable=repeatable)),
            wait=_wait,
            before_sleep=self._count_retry(method),
            reraise=True,
        )
        return await retrying(self._authenticated, method, path, params, encoded, content_type)

    async def _authenticated(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, content_type: str
    ) -> JsonObject:
        """Send a request; if the credentials turn out to be stale, renew them and send it once more."""
        try:
            return await self._attempt(method, path, params, body, content_type)
        except Unauthorized:
            async with self._clock.timeout(self._timeout):
                renewed = await self.access.credentials.renew()
            if not renewed:
                raise
        return await self._attempt(method, path, params, body, content_type)

    async def _attempt(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, content_type: str
    ) -> JsonObject:
        session = _open(self._requests)
        started = self._clock.monotonic()
        with _transport_errors(method, self._url(path)):
            async with self._clock.timeout(self._timeout):
                response = await self._send(
                    session, method, path, params=params, body=body, content_type=content_type, accept=_JSON
                )
                async with response:
                    if response.status >= 400:
                        raise await self._error(response)
                    answer = await self._read(response)
        metrics.REQUEST_DURATION.labels(method, self._host).observe(self._clock.monotonic() - started)
        try:
            decoded = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            raise MalformedResponse(f"{method} {path}: the answer is not JSON: {_excerpt(answer)}") from error
        if not isinstance(decoded, dict):
            raise MalformedResponse(f"{method} {path}: the answer is not an object: {_excerpt(answer)}")
        return decoded

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        accept: str,
        body: bytes | None = None,
        content_type: str = _JSON,
    ) -> aiohttp.ClientResponse:
        """Send one request and return when its headers have arrived."""
        headers = {"Accept": accept, "Accept-Encoding": "identity", **await self.access.headers()}
        if body is not None:
            headers["Content-Type"] = content_type
        code = metrics.NO_ANSWER
        try:
            response = await session.request(
                method,
                self._url(path),
                params=params,
                data=body,
                headers=headers,
                proxy=self.access.proxy,
                server_hostname=self.access.server_hostname,
                allow_redirects=False,
            )
            code = str(response.status)
        finally:
            metrics.REQUESTS.labels(code, method, self._host).inc()
        return response

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """Read a body up to the ceiling."""
        if (response.content_length or 0) > self._response_limit:
            raise self._too_large(response)
        parts: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > self._response_limit:
                raise self._too_large(response)
            parts.append(chunk)
        return b"".join(parts)

    async def _error(self, response: aiohttp.ClientResponse) -> ApiError:
        """Make the error of a refused request; of an endless body only the beginning is read."""
        parts: list[bytes] = []
        size = 0
        with _transport_errors(response.method, str(response.url)):
            async with self._clock.timeout(self._timeout):
                async for chunk in response.content.iter_any():
                    parts.append(chunk)
                    size += len(chunk)
                    if size > _ERROR_BODY_LIMIT:
                        response.close()
                        break
        return from_response(response.status, response.headers, b"".join(parts))

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise StreamBroken(f"GET {response.url.path}: the stream broke: {_describe(error)}") from error

    def _session(self, *, limit: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit, ssl=self.access.ssl_context if self.access.ssl_context is not None else True
            ),
            # The total is ours to watch (`_clock.timeout`), because a watch has none.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
            headers={"User-Agent": self._user_agent},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**18,
        )

    def _url(self, path: str) -> str:
        return self.access.server + path

    def _too_large(self, response: aiohttp.ClientResponse) -> ResponseTooLarge:
        return ResponseTooLarge(
            f"{response.method} {response.url.path}: the answer exceeds {self._response_limit} bytes; "
            "narrow the selector or read it in pages"
        )

    def _count_retry(self, method: str) -> Any:
        def count(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            code = str(error.status) if isinstance(error, ApiError) else metrics.NO_ANSWER
            metrics.RETRIES.labels(code, method, self._host).inc()
            log.debug("request is tried again", method=method, tries=state.attempt_number, error=str(error))

        return count


def _open(session: aiohttp.ClientSession | None) -> aiohttp.ClientSession:
    if session is None:
        raise RuntimeError("the client is not open; use it inside `async with KubeClient(...)`")
    return session


@contextmanager
def _transport_errors(method: str, url: str) -> Iterator[None]:
    """Translate what the HTTP library raises; the one place that knows its exceptions."""
    try:
        yield
    except KubeError:
        raise
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            raise NotConnected(f"{method} {url}: no connection within {_CONNECT_TIMEOUT:g} s") from error
        raise RequestTimeout(f"{method} {url}: no answer in time") from error
    except (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError) as error:
        raise NotConnected(f"{method} {url}: {_describe(error)}") from error
    except (aiohttp.ClientError, OSError) as error:
        raise TransportError(f"{method} {url}: {_describe(error)}") from error


def _worth_a_retry(error: BaseException, *, repeatable: bool) -> bool:
    if isinstance(error, ApiError):
        return error.status in {429, 503} and error.retry_after is not None
    return isinstance(error, NotConnected) or (repeatable and isinstance(error, TransportError))


_pause = tenacity.wait_random_exponential(multiplier=0.2, max=5.0)


def _wait(state: tenacity.RetryCallState) -> float:
    """Wait as long as the server asked for, within reason; without its word, longer each time and at random."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ApiError) and error.retry_after is not None:
        return min(error.retry_after, _RETRY_AFTER_AT_MOST)
    return float(_pause(state))


def _path_of(resource: Resource, obj: JsonObject, subresource: str | None) -> str:
    metadata = obj.get("metadata", {})
    name = metadata.get("name")
    if not name:
        raise ValueError(f"writing one of {resource.name} needs metadata.name")
    return resource.path(metadata.get("namespace"), name, subresource)


def _params(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _describe(error: BaseException) -> str:
    return shorten(str(error), limit=300) or type(error).__name__


def _excerpt(body: bytes) -> str:
    return shorten(body[:1000].decode("utf-8", "replace"), limit=200)
