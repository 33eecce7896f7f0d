"""Answering: one request to the status server, from its headers to the answer, in the words of the original.

Guarantees:
- Every answer is JSON: the report as it was understood, or a `Status` of Kubernetes.
- A body has at most 64 KiB; reading it and answering take at most ten seconds each.
- Each report replaces the one before, by a server-side apply of `status.trainerStatus` and of nothing else.
- A TrainJob is written at most once a second, after a burst; who is faster is told when to come again.
- An unforeseen error is an answer like any other (500), and a line in the log; what was sent is in neither.
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
from trainmaster.controller.kube.rest.errors import BadRequest, Invalid, KubeError, NotFound, TooManyRequests
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.statusserver.authorizer import Authorizer, Denied, Finished, Target, TooMany
from trainmaster.controller.statusserver.payload import InvalidPayload, Report, read_report
from trainmaster.controller.statusserver.throttle import Throttle
from trainmaster.runtime.api.constants import STATUS_FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

LARGEST_BODY: Final = 65_536
READ_TIMEOUT: Final = 10.0
ANSWER_TIMEOUT: Final = 10.0

REPORTS_RATE: Final = 1.0
REPORTS_BURST: Final = 10
_REPORTERS: Final = 65_536

BUSY_FOR: Final = 5.0
"""Seconds after which to try again when requests to the API server take too long, for instance at its rate limit."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    code: int
    body: JsonObject
    headers: dict[str, str] = field(default_factory=dict)


def refusal(code: int, reason: str, message: str, *, retry_after: float | None = None) -> Reply:
    """Make the answer to a request that was not performed."""
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
    return Reply(code, status, headers)


NOT_FOUND: Final = refusal(404, "NotFound", "Not found")
TOO_LARGE: Final = refusal(413, "RequestEntityTooLarge", "Payload too large")
FAILED: Final = refusal(500, "InternalError", "Internal error")
UNFORESEEN: Final = refusal(500, "InternalError", "Internal Server Error")
_FORBIDDEN: Final = refusal(403, "Forbidden", "Forbidden")
_FINISHED: Final = refusal(403, "Forbidden", "Forbidden: the TrainJob has finished")
_INVALID: Final = refusal(422, "Invalid", "Invalid payload")
_GONE: Final = refusal(404, "NotFound", "Train job not found")
_LATE: Final = refusal(408, "Timeout", f"The payload did not arrive within {READ_TIMEOUT:g} s")


def too_many(retry_after: float) -> Reply:
    """Make the answer to a request that comes too early."""
    return refusal(429, "TooManyRequests", "Too many requests", retry_after=retry_after)


class Reports:
    """Takes reports.

    Args:
        client: Performs the requests to the API server.
        trainjobs: The cache of TrainJobs.
        clock: The time.
    """

    def __init__(self, client: KubeClient, trainjobs: Store, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._authorizer = Authorizer(client, trainjobs, clock=clock)
        self._throttle: Throttle[str] = Throttle(rate=REPORTS_RATE, burst=REPORTS_BURST, limit=_REPORTERS, clock=clock)

    async def answer(self, request: web.Request) -> Reply:
        """Answer a request to the path of a TrainJob's status."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            async with self._clock.timeout(ANSWER_TIMEOUT):
                target = await self._authorizer.authorize(
                    request.headers.get("Authorization"), namespace=namespace, name=name, peer=request.remote or ""
                )
        except Denied:
            return _FORBIDDEN
        except Finished:
            return _FINISHED
        except TooMany as error:
            return too_many(error.retry_after)
        except (KubeError, TimeoutError) as error:
            return self._unanswerable("a token cannot be checked", error, namespace, name)
        wait = self._throttle.take(target.uid)
        if wait:
            return too_many(wait)
        try:
            async with self._clock.timeout(READ_TIMEOUT):
                report = read_report(await request.read())
        except (InvalidPayload, web.HTTPRequestEntityTooLarge, web.RequestPayloadError, BadHttpMessage):
            return _INVALID
        except TimeoutError:
            return _LATE
        return await self._write(target, report)

    async def _write(self, target: Target, report: Report) -> Reply:
        body = report.to_json()
        if "trainerStatus" not in body:
            return Reply(200, body)
        trainjob = {
            "apiVersion": TRAINJOBS.api_version,
            "kind": TRAINJOBS.kind,
            "metadata": {"name": target.name, "namespace": target.namespace},
            "status": body,
        }
        try:
            async with self._clock.timeout(ANSWER_TIMEOUT):
                await self._client.apply(TRAINJOBS, trainjob, field_manager=STATUS_FIELD_MANAGER, subresource="status")
        except (Invalid, BadRequest) as error:
            return refusal(422, "Invalid", error.message)
        except NotFound:
            return _GONE
        except (KubeError, TimeoutError) as error:
            return self._unanswerable("a report cannot be written", error, target.namespace, target.name)
        return Reply(200, body)

    def _unanswerable(self, what: str, error: Exception, namespace: str, name: str) -> Reply:
        if isinstance(error, TimeoutError | TooManyRequests):
            retry_after = getattr(error, "retry_after", None) or BUSY_FOR
            log.warning(
                "the API server does not answer reports in time",
                what=what,
                namespace=namespace,
                trainjob=name,
                hint="raise statusServer.qps and burst if this happens often",
            )
            return too_many(retry_after)
        log.error(what, namespace=namespace, trainjob=name, error=str(error))
        return FAILED


def encoded(reply: Reply) -> web.Response:
    """Write an answer."""
    return web.Response(
        status=reply.code, body=orjson.dumps(reply.body), content_type="application/json", headers=reply.headers
    )
