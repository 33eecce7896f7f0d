"""From a request to its answer: credentials, limits, timeouts, retries, metrics and decoding.

Guarantees:
- P-4: every request has a timeout that covers connecting, sending and reading the whole answer, and every answer has
  a ceiling. A stream has a timeout for its opening; whoever reads it limits its silences.
- A 401 renews the credentials and tries once more; a certificate that we do not accept first looks whether we are to
  trust another one by now. Retries follow `RetryPolicy`.
- The guard goes with each attempt of a write to the transport, which calls it immediately before bytes are written: a
  process that has lost its lease sends nothing more, neither what waited for a connection nor a second try.
- T-6: bodies and answers are JSON, the one format that custom resources have.
- T-7: answers come uncompressed; on the networks of clusters compressing costs more than it saves.
- P-36: every answer is read to its end or given up.
- K-10: each attempt is counted and measured, under the names of client-go.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import orjson
import structlog

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.concurrency_limit import ConcurrencyLimit
from trainmaster.controller.kube.rest.confidential import confidential
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import (
    NOT_KUBERNETES,
    ApiError,
    CertificateRejected,
    Forbidden,
    KubeError,
    MalformedResponse,
    RequestTimeout,
    ResponseTooLarge,
    TooManyRequests,
    TransportError,
    Unauthorized,
    describe_body,
    from_response,
)
from trainmaster.controller.kube.rest.missing_rights import MissingRights
from trainmaster.controller.kube.rest.partial import read_object
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.retry import RetryPolicy
from trainmaster.controller.kube.rest.transport import Guard, Response, Transport
from trainmaster.controller.redaction import REDACTED
from trainmaster.metrics.rest_client import NO_ANSWER, RequestMetrics
from trainmaster.runtime.jsontext import JsonError, is_too_deep, too_deep
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

log = structlog.get_logger(__name__)

JSON: Final = "application/json"
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

NO_PARAMS: Final[Mapping[str, str]] = MappingProxyType({})

_Identity: TypeAlias = tuple[Mapping[str, str], ssl.SSLContext | None]

_ERROR_BODY_LIMIT: Final = 2**20
"""A `Status` is a few KiB; what is longer is not one, and its beginning says what it is."""


class Request(NamedTuple):
    """One request, before it has credentials."""

    method: str
    path: str
    params: Mapping[str, str] = NO_PARAMS
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] | None = None
    """More headers than those that every request has."""

    repeatable: bool = False
    """Whether performing it twice comes to the same as performing it once."""


class RestClient:
    """Sends the requests of one client."""

    def __init__(
        self,
        config: RestConfig,
        transport: Transport,
        *,
        user_agent: str,
        clock: Clock,
        timeout: float,
        response_limit: int,
        retry_policy: RetryPolicy,
        limiter: RateLimiter | None,
        concurrency_limit: ConcurrencyLimit,
        guard: Guard | None,
        missing_rights: MissingRights | None,
    ) -> None:
        self._config = config
        self._transport = transport
        self._user_agent = user_agent
        self._clock = clock
        self._timeout = timeout
        self._response_limit = response_limit
        self._retry_policy = retry_policy
        self._limiter = limiter
        self._concurrency_limit = concurrency_limit
        self._guard = guard
        self._missing_rights = missing_rights
        self._metrics = RequestMetrics(urlsplit(config.server).netloc)

    async def object(self, request: Request) -> JsonObject:
        """Send a request, with retries, and decode the object that answers it."""
        return self.decode(request, await self.body(request))

    def decode(self, request: Request, answer: bytes) -> JsonObject:
        """Decode the object that answered a request."""
        try:
            decoded = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            try:
                decoded, _ = read_object(answer)
            except JsonError:
                raise MalformedResponse(f"{self._where(request)}: {describe_body(answer)}; {NOT_KUBERNETES}") from error
        if request.method == "GET" and isinstance(decoded, dict):
            reason = why_unreadable(decoded) or (too_deep() if is_too_deep(decoded) else None)
            if reason is not None:
                raise MalformedResponse(f"{self._where(request)}: the object cannot be read: {reason}; correct it")
        if not isinstance(decoded, dict):
            raise MalformedResponse(f"{self._where(request)}: {describe_body(answer)}; {NOT_KUBERNETES}")
        return decoded

    async def body(self, request: Request) -> bytes:
        """Send a request, with retries, and return the body of its answer."""
        try:
            return await self._renewing(request)
        except KubeError as error:
            # Only now, because tenacity leaves some thirty objects behind that the garbage collector has to find.
            return await self._retry(request, error)

    async def _retry(self, request: Request, first: KubeError) -> bytes:
        """Send a request again, if `first`, which its first try ended in, is a reason to."""
        failures = [first]

        async def attempt() -> bytes:
            if failures:
                raise failures.pop()
            return await self._renewing(request)

        def count(error: KubeError, attempt: int) -> None:
            self._metrics.retry(request.method, code=_code(error))
            log.debug("request is tried again", method=request.method, attempt=attempt, error=str(error))

        retrying = self._retry_policy.retrying(repeatable=request.repeatable, before_retry=count)
        return await retrying(attempt)

    async def answer(self, request: Request) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request once and return the answer as it is, refusals included."""
        identity = await self._ready(request)
        response, body = await self._attempt(request, identity, refusals_too=True)
        return response.status, response.headers, body

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream, and close its connection in the end."""
        used = await self._ready(request)
        try:
            response = await self._opened(request, used)
        except (Unauthorized, CertificateRejected):
            if not await self._renewed(used):
                raise
            response = await self._opened(request, await self._ready(request))
        try:
            yield response.chunks()
        finally:
            response.close()

    async def _opened(self, request: Request, identity: _Identity) -> Response:
        """Open a stream, or raise why the server refuses to."""
        try:
            async with self._clock.timeout(self._timeout):
                response = await self._send(request, identity, streaming=True)
                if response.status < 300:
                    self._note_right(request, response.status)
                    return response
                try:
                    raise await self._refusal(request, response)
                finally:
                    response.close()
        except TimeoutError as error:
            raise self._too_late(request) from error

    async def _renewing(self, request: Request) -> bytes:
        """Send a request; if what we know of each other turns out to be stale, renew that and send it once more."""
        used = await self._ready(request)
        try:
            _, body = await self._attempt(request, used)
        except (Unauthorized, CertificateRejected):
            if not await self._renewed(used):
                raise
            _, body = await self._attempt(request, await self._ready(request))
        return body

    async def _ready(self, request: Request) -> _Identity:
        """Wait for the limit of this client, and then find out who we are; both have their own limits of time."""
        if self._limiter is not None:
            started = self._clock.monotonic()
            await self._limiter.wait()
            self._metrics.limited(request.method, self._clock.monotonic() - started)
        return await self._config.headers(), self._config.ssl_context

    async def _renewed(self, used: _Identity) -> bool:
        """Whether there is something else to try: what another request has found meanwhile, or what we find now."""
        found = await self._config.headers(), self._config.ssl_context
        return found != used or await self._config.credentials.renew()

    async def _attempt(
        self, request: Request, identity: _Identity, *, refusals_too: bool = False
    ) -> tuple[Response, bytes]:
        """Send a request once, and return the answer with its body; measures how long that takes."""
        started = self._clock.monotonic()
        try:
            async with self._clock.timeout(self._timeout):
                response = await self._send(request, identity, streaming=False)
                try:
                    if not refusals_too:
                        if response.status >= 300:
                            raise await self._refusal(request, response)
                        self._note_right(request, response.status)
                    return response, await self._read(request, response)
                finally:
                    response.close()
                    now = self._clock.monotonic()
                    self._metrics.duration(request.method, now - started)
                    if request.method in WRITES:
                        self._concurrency_limit.answered(sent=started, now=now, status=response.status)
        except TimeoutError as error:
            if request.method in WRITES:
                self._concurrency_limit.answered(sent=started, now=self._clock.monotonic(), status=None)
            raise self._too_late(request) from error

    def _too_late(self, request: Request) -> RequestTimeout:
        return RequestTimeout(
            f"{self._where(request)}: no complete answer within {self._timeout:g} s; "
            "the server or the network is overloaded or gone"
        )

    def _headers(self, request: Request, identity: _Identity) -> dict[str, str]:
        headers = {
            "Accept": request.accept,
            "Accept-Encoding": "identity",
            "User-Agent": self._user_agent,
            **identity[0],
        }
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if request.headers is not None:
            headers |= request.headers
        return headers

    async def _send(self, request: Request, identity: _Identity, *, streaming: bool) -> Response:
        """Send a request and return when the headers of its answer have arrived."""
        headers = self._headers(request, identity)
        code = NO_ANSWER
        try:
            response = await self._transport.send(
                request.method,
                request.path,
                params=request.params,
                headers=headers,
                body=request.body,
                streaming=streaming,
                guard=self._guard if request.method in WRITES else None,
            )
            code = str(response.status)
        finally:
            self._metrics.request(request.method, code=code, size=len(request.body or b""))
        return response

    async def _read(self, request: Request, response: Response) -> bytes:
        """Read a body up to the ceiling."""
        parts: list[bytes] = []
        size = 0
        async for chunk in response.chunks():
            size += len(chunk)
            # What comes in one piece need not be announced.
            if size > self._response_limit or (len(parts) == 1 and _announced(response) > self._response_limit):
                raise ResponseTooLarge(
                    f"{self._where(request)}: the answer exceeds {self._response_limit} bytes; "
                    "narrow the selector or read it in pages"
                )
            parts.append(chunk)
        self._metrics.response(request.method, size=size)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _refusal(self, request: Request, response: Response) -> ApiError:
        """Make the error of a refused request; of an endless body only the beginning is read."""
        parts: list[bytes] = []
        size = 0
        try:
            async for chunk in response.chunks():
                parts.append(chunk)
                size += len(chunk)
                if size > _ERROR_BODY_LIMIT:
                    break
        except TransportError:
            # The status says enough; a proxy that dies while it explains itself changes nothing.
            log.debug("the explanation of a refusal broke off", request=self._where(request), status=response.status)
        body = b"".join(parts)
        for value in confidential(request.path, request.body):
            body = body.replace(value, REDACTED.encode())
        error = from_response(
            response.status,
            response.headers,
            body,
            request=self._where(request),
            source=self._config.source,
        )
        self._note_right(request, response.status, error)
        return error

    def _note_right(self, request: Request, status: int, error: ApiError | None = None) -> None:
        """Take note of whether a request was allowed; what is not found, or in conflict, was."""
        if self._missing_rights is None:
            return
        if isinstance(error, Forbidden):
            self._missing_rights.refused(error)
        elif status < 500 and not isinstance(error, Unauthorized | TooManyRequests):
            self._missing_rights.accepted(request.method, request.path, request.params, status)

    def _where(self, request: Request) -> str:
        """Name a request; without its parameters, which may be long and change each time."""
        return f"{request.method} {self._config.server}{request.path}"


def _announced(response: Response) -> int:
    """Return how long a body will be, or 0 if its headers do not tell."""
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else 0


def _code(error: KubeError) -> str:
    return str(error.status) if isinstance(error, ApiError) else NO_ANSWER
