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
- M-11: no refusal carries into a text what is in a Secret or a token to be reviewed, which a server, or an admission
  webhook behind it, may quote.
- P-36: every answer is read to its end or given up.
- K-10: each attempt is counted and measured, under the names of client-go.
"""

from __future__ import annotations

import random as randomness
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import orjson
import structlog

from trainmaster.controller.kube.clock import Clock, Random, SystemClock
from trainmaster.controller.kube.rest.concurrency_limit import ConcurrencyLimit
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
from trainmaster.controller.kube.rest.http1.transport import HttpTransport
from trainmaster.controller.kube.rest.partial import read_object
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.retry import TRIES, RetryPolicy
from trainmaster.controller.kube.rest.transport import CONNECTIONS, Guard, Response, Transport
from trainmaster.controller.kube.rest.watch import INACTIVITY_LIMIT
from trainmaster.controller.redaction import REDACTED
from trainmaster.metrics.rest_client import NO_ANSWER, RequestMetrics
from trainmaster.runtime.jsontext import JsonError, is_too_deep, load_json, too_deep
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

log = structlog.get_logger(__name__)

JSON: Final = "application/json"
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

NO_PARAMS: Final[Mapping[str, str]] = MappingProxyType({})

RESPONSE_LIMIT: Final = 512 * 2**20
"""An unpaged list of 50,000 objects of 10 KiB; beyond it the server is not one of ours."""

T = TypeVar("T")

_Identity: TypeAlias = tuple[Mapping[str, str], ssl.SSLContext | None]

_SHORTEST_SECRET: Final = 8
"""Characters; what is shorter is no secret, and occurs in any text."""

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


class RightsObserver(Protocol):
    """Whom a client tells what the server allows."""

    def refused(self, error: Forbidden) -> None:
        """Take note of a refusal."""

    def accepted(self, method: str, path: str, params: Mapping[str, str], status: int) -> None:
        """Take note of a request that was allowed."""


class RestClient:
    """Sends the requests of one client; an async context manager that owns its connections.

    `guard` is called immediately before bytes of a write leave, and may raise `NotLeading`; `limiter` is waited for
    before each request. `transport` replaces the connections to the server, for instance by a simulated one;
    `missing_rights` is told which rights the server refuses.
    """

    def __init__(
        self,
        config: RestConfig,
        *,
        user_agent: str,
        timeout: float = 30.0,
        tries: int = TRIES,
        connections: int = CONNECTIONS,
        inactivity_limit: float = INACTIVITY_LIMIT,
        response_limit: int = RESPONSE_LIMIT,
        clock: Clock | None = None,
        random: Random = randomness.random,
        transport: Transport | None = None,
        limiter: RateLimiter | None = None,
        guard: Guard | None = None,
        missing_rights: RightsObserver | None = None,
    ) -> None:
        self.config = config
        self._user_agent = user_agent
        self._timeout = timeout
        self._inactivity_limit = inactivity_limit
        self._response_limit = response_limit
        self._clock = clock or SystemClock()
        self._transport = transport or HttpTransport(config, clock=self._clock, connections=connections)
        self._retry_policy = RetryPolicy(tries=tries, random=random, sleep=self._clock.sleep)
        self._limiter = limiter
        self._guard = guard
        self._missing_rights = missing_rights
        self._metrics = RequestMetrics(config.peer.netloc)
        self.concurrency_limit = ConcurrencyLimit(self._clock.monotonic())
        """How many writes the server should have at once, as its answers tell."""

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._transport.__aexit__(*exc_info)

    async def _object(self, request: Request) -> JsonObject:
        """Send a request, with retries, and decode the object that answers it."""
        return self._decode(request, await self._body(request))

    def _decode(self, request: Request, answer: bytes) -> JsonObject:
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

    async def _body(self, request: Request) -> bytes:
        """Send a request, with retries, and return the body of its answer."""
        try:
            _, body = await self._renewing(request, self._attempt)
        except KubeError:
            # Only now, because tenacity leaves some thirty objects behind that the garbage collector has to find.
            note = partial(self._note_retry, request)
            async for attempt in self._retry_policy.retrying(repeatable=request.repeatable, before_retry=note):
                with attempt:
                    if attempt.retry_state.attempt_number == 1:
                        raise
                    _, body = await self._renewing(request, self._attempt)
        return body

    def _note_retry(self, request: Request, error: KubeError, attempt: int) -> None:
        code = str(error.status) if isinstance(error, ApiError) else NO_ANSWER
        self._metrics.retry(request.method, code=code)
        log.debug("request is tried again", method=request.method, attempt=attempt, error=str(error))

    async def _answer(self, request: Request) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request once and return the answer as it is, refusals included."""
        identity = await self._ready(request)
        response, body = await self._attempt(request, identity, refusals_too=True)
        return response.status, response.headers, body

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream, and close its connection in the end."""
        response = await self._renewing(request, self._opened)
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

    async def _renewing(self, request: Request, attempt: Callable[[Request, _Identity], Awaitable[T]]) -> T:
        """Try a request; if what we know of each other turns out to be stale, renew that and try it once more."""
        used = await self._ready(request)
        try:
            return await attempt(request, used)
        except (Unauthorized, CertificateRejected):
            if not await self._renewed(used):
                raise
            return await attempt(request, await self._ready(request))

    async def _ready(self, request: Request) -> _Identity:
        """Wait for the limit of this client, and then find out who we are; both have their own limits of time."""
        if self._limiter is not None:
            started = self._clock.monotonic()
            await self._limiter.wait()
            self._metrics.limited(request.method, self._clock.monotonic() - started)
        return await self.config.headers(), self.config.ssl_context

    async def _renewed(self, used: _Identity) -> bool:
        """Whether there is something else to try: what another request has found meanwhile, or what we find now."""
        found = await self.config.headers(), self.config.ssl_context
        return found != used or await self.config.credentials.renew()

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
                        self.concurrency_limit.answered(sent=started, now=now, status=response.status)
        except TimeoutError as error:
            if request.method in WRITES:
                self.concurrency_limit.answered(sent=started, now=self._clock.monotonic(), status=None)
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
            if size > self._response_limit:
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
            source=self.config.source,
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
        return f"{request.method} {self.config.server}{request.path}"


def confidential(path: str, body: bytes | None) -> list[bytes]:
    """Return the confidential values of a request, the longest first: one may be a part of another."""
    parts = path.split("/")
    if body is None or not {"secrets", "tokenreviews"} & set(parts):
        return []
    try:
        obj = load_json(body)
    except JsonError:
        return []
    found = {text for text in _texts(obj) if len(text) >= _SHORTEST_SECRET} if isinstance(obj, dict) else set()
    return [text.encode() for text in sorted(found, key=len, reverse=True)]


def _texts(obj: dict[str, Any]) -> Iterator[str]:
    for section in (obj.get("data"), obj.get("stringData"), obj.get("spec")):
        if isinstance(section, dict):
            yield from (value for value in section.values() if isinstance(value, str))
