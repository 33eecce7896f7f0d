"""One report, from the headers of its request to the response, in the words of the original.

Guarantees:
- Every response is JSON: the report as it was understood, or a `Status` of Kubernetes.
- A body has at most 64 KiB; reading it and each part of answering take at most ten seconds.
- Each report replaces the one before, by a server-side apply of `status.trainerStatus` and of nothing else.
- A report is never written to a successor of the TrainJob's name: what is written names a resource version of it.
- A TrainJob is written at most once a second, after a burst; who is faster is told when to come again.
- Where the definition is the original's, which an apply must not go beyond, what only ours has is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
)
from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.server.authentication import Denied, TooMany
from trainmaster.controller.statusserver.authorizer import Authorizer, Finished, OwnerKinds, Target
from trainmaster.controller.statusserver.payload import InvalidPayload, Report, read_report
from trainmaster.runtime.api.constants import STATUS_FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

LARGEST_BODY: Final = 65_536
READ_TIMEOUT: Final = 10.0
REQUEST_TIMEOUT: Final = 10.0

REPORTS_QPS: Final = 1.0
REPORTS_BURST: Final = 10
_REPORTERS: Final = 65_536

_TRIES: Final = 5
"""Of writing a report: others write the same status, and the cache is a little behind them."""

_UNDECLARED: Final = "field not declared in schema"
LOOK_AGAIN: Final = 600.0
"""Seconds after which it is tried again whether the definition has become ours."""

RETRY_WHEN_BUSY: Final = 5.0
"""Seconds after which to try again when requests to the API server take too long, for instance at its rate limit."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a trainer is told."""

    code: int
    body: JsonObject
    headers: dict[str, str] = field(default_factory=dict)


def failure(code: int, reason: str, message: str, *, retry_after: float | None = None) -> Response:
    """Make the `Status` of a request that was not performed."""
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
    return Response(code, status, headers)


NOT_FOUND: Final = failure(404, "NotFound", "Not found")
TOO_LARGE: Final = failure(413, "RequestEntityTooLarge", "Payload too large")
FAILED: Final = failure(500, "InternalError", "Internal error")
UNFORESEEN: Final = failure(500, "InternalError", "Internal Server Error")
_FORBIDDEN: Final = failure(403, "Forbidden", "Forbidden")
_FINISHED: Final = failure(403, "Forbidden", "Forbidden: the TrainJob has finished")
_INVALID: Final = failure(422, "Invalid", "Invalid payload")
_GONE: Final = failure(404, "NotFound", "Train job not found")
_LATE: Final = failure(408, "Timeout", f"The payload did not arrive within {READ_TIMEOUT:g} s")


def too_many_requests(retry_after: float) -> Response:
    """Make the response to a request that comes too early; `retry_after` is in seconds."""
    return failure(429, "TooManyRequests", "Too many requests", retry_after=retry_after)


class StatusHandler:
    """Handles reports.

    Args:
        owners: Whom pods may belong to.
    """

    def __init__(self, client: KubeClient, trainjobs: Store, owners: OwnerKinds, *, clock: Clock) -> None:
        self._client = client
        self._original_until = 0.0
        """Until when the definition is taken for the original's."""

        self._clock = clock
        self._authorizer = Authorizer(client, trainjobs, owners, clock=clock)
        self._limiter: KeyedRateLimiter[str] = KeyedRateLimiter(
            qps=REPORTS_QPS, burst=REPORTS_BURST, maxsize=_REPORTERS, clock=clock
        )

    async def handle(self, request: web.Request) -> Response:
        """Handle a request to the path of a TrainJob's status."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            async with self._clock.timeout(REQUEST_TIMEOUT):
                target = await self._authorizer.authorize(
                    request.headers.get("Authorization"), namespace=namespace, name=name, peer=request.remote or ""
                )
        except Denied:
            return _FORBIDDEN
        except Finished:
            return _FINISHED
        except TooMany as error:
            return too_many_requests(error.retry_after)
        except (KubeError, TimeoutError) as error:
            return self._unavailable("a token cannot be checked", error, namespace, name)
        delay = self._limiter.try_accept(target.uid)
        if delay:
            return too_many_requests(delay)
        try:
            async with self._clock.timeout(READ_TIMEOUT):
                report = read_report(await request.read())
        except (InvalidPayload, web.HTTPRequestEntityTooLarge, web.RequestPayloadError, BadHttpMessage):
            return _INVALID
        except TimeoutError:
            return _LATE
        return await self._write(target, report)

    async def _write(self, target: Target, report: Report) -> Response:
        body = report.to_json(is_original=self._clock.monotonic() < self._original_until)
        if "trainerStatus" not in body:
            return Response(200, body)
        try:
            async with self._clock.timeout(REQUEST_TIMEOUT):
                try:
                    await self._apply(target, body)
                except ApiError as error:
                    if _UNDECLARED not in error.message or body == report.to_json(is_original=True):
                        raise
                    self._original_until = self._clock.monotonic() + LOOK_AGAIN
                    body = report.to_json(is_original=True)
                    await self._apply(target, body)
        except (Invalid, BadRequest) as error:
            return failure(422, "Invalid", error.message)
        except NotFound:
            return _GONE
        except Conflict:
            return too_many_requests(RETRY_WHEN_BUSY)
        except (KubeError, TimeoutError) as error:
            return self._unavailable("a report cannot be written", error, target.namespace, target.name)
        return Response(200, body)

    async def _apply(self, target: Target, status: JsonObject) -> None:
        """Apply a status to the TrainJob that was authorized, and to no successor of its name.

        kube-apiserver takes no notice of the UID in a write to the status of a custom resource. So the write names a
        resource version that belongs to this UID.
        """
        version = target.resource_version
        for tries_left in reversed(range(_TRIES)):
            trainjob = {
                "apiVersion": TRAINJOBS.api_version,
                "kind": TRAINJOBS.kind,
                "metadata": {"name": target.name, "namespace": target.namespace, "resourceVersion": version},
                "status": status,
            }
            try:
                await self._client.apply(TRAINJOBS, trainjob, field_manager=STATUS_FIELD_MANAGER, subresource="status")
            except Conflict:
                if not tries_left:
                    raise
            else:
                return
            live = await self._client.get(TRAINJOBS, target.namespace, target.name, metadata_only=True)
            if live["metadata"]["uid"] != target.uid:
                raise NotFound(status=404, reason="NotFound", message="another TrainJob has the name now")
            version = live["metadata"]["resourceVersion"]

    def _unavailable(self, what: str, error: Exception, namespace: str, name: str) -> Response:
        if isinstance(error, TimeoutError | TooManyRequests):
            retry_after = getattr(error, "retry_after", None) or RETRY_WHEN_BUSY
            log.warning(
                "the API server does not answer reports in time",
                what=what,
                namespace=namespace,
                trainjob=name,
                hint="raise statusServer.qps and burst if this happens often",
            )
            return too_many_requests(retry_after)
        write = log.debug if isinstance(error, Forbidden) and error.told else log.error
        write(what, namespace=namespace, trainjob=name, error=str(error))
        return FAILED


def encode(response: Response) -> web.Response:
    """Write a response."""
    return web.Response(
        status=response.code,
        body=orjson.dumps(response.body),
        content_type="application/json",
        headers=response.headers,
    )
