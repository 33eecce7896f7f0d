"""Who may read: tokens are authenticated by TokenReview, their users authorized by SubjectAccessReview.

The same as `WithAuthenticationAndAuthorization` of controller-runtime, with its texts and its times.

Guarantees:
- M-6: without a token that the API server authenticates the answer is 401, and 403 for users whom it does not allow
  the path. While it cannot be asked the answer is 500: nothing is ever served unasked.
- M-6: results are cached by digest, for a bounded number of tokens and users. A token is reviewed once, however many
  requests bring it at the same time, and not more than so many reviews are under way, on a client of their own.
- Who sends tokens that are refused causes a few reviews (`ReviewThrottle`), and is told to come again later (429).
- No token is in a log, in an answer, or in memory longer than its request.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Final, TypeAlias

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from cachetools import TLRUCache

from trainmaster.controller.job_fields import mapping
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.resources import ACCESS_REVIEWS, FORWARDED_AUTHORIZATION, Resource
from trainmaster.controller.server.authentication import (
    Denied,
    ReviewThrottle,
    SingleFlight,
    TooMany,
    bearer_token,
    review_token,
    token_digest,
)
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

AUTHENTICATED_FOR: Final = 60.0
REFUSED_FOR: Final = 10.0
ALLOWED_FOR: Final = 300.0
DENIED_FOR: Final = 30.0
"""Seconds for which results are cached; those of controller-runtime, but a refused token may be good soon."""

CACHE_SIZE: Final = 1024
REVIEWS_AT_ONCE: Final = 8
REVIEW_TIMEOUT: Final = 10.0
"""Seconds for both reviews of a request, the wait for their turn included."""

USER: Final = web.RequestKey("user", dict)
"""Under which a request has the user whom the API server authenticated."""

_UserKey: TypeAlias = tuple[str, str]
"""A user and what is to be done, as JSON."""


class DelegatingAuth:
    """Asks the API server who somebody is, and whether they may.

    Args:
        client: Where tokens and accesses are reviewed; nothing else should use it.
    """

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._users: TLRUCache[bytes, JsonObject] = TLRUCache(
            CACHE_SIZE,
            ttu=lambda _, user, now: now + (AUTHENTICATED_FOR if user else REFUSED_FOR),
            timer=clock.monotonic,
        )
        """Whose a token is, by its digest; empty: nobody's."""

        self._accesses: TLRUCache[_UserKey, bool] = TLRUCache(
            CACHE_SIZE,
            ttu=lambda _, allowed, now: now + (ALLOWED_FOR if allowed else DENIED_FOR),
            timer=clock.monotonic,
        )
        self._throttle = ReviewThrottle(clock=clock)
        self._reviewing: SingleFlight[bytes | _UserKey] = SingleFlight()
        self._told = RateLimiter(qps=0.1, burst=1, clock=clock)
        self._places = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self.exempt: list[str] = []
        """How paths begin whose handlers call `refusal` themselves."""

    @property
    def middleware(self) -> Middleware:
        """What lets through whom the API server authenticates and allows the path; the request tells who it is."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            if resource is not None and resource.canonical.startswith(tuple(self.exempt)):
                return await handler(request)
            refusal = await self.refusal(request, token_of(request), path=request.path)
            return await handler(request) if refusal is None else refusal

        return check

    async def may_list(self, user: JsonObject, resource: Resource, namespace: str) -> bool:
        """Tell whether a user may list a resource in a namespace, or in all for an empty one.

        Raises:
            KubeError: The API server could not be asked.
            TimeoutError: It does not answer.
        """
        attributes = {
            "group": resource.group,
            "version": resource.version,
            "resource": resource.plural,
            "namespace": namespace,
            "verb": "list",
        }
        async with self._clock.timeout(REVIEW_TIMEOUT):
            return await self._authorize(user, {"resourceAttributes": attributes})

    async def refusal(self, request: web.Request, token: str, *, path: str, verb: str = "") -> web.Response | None:
        """Return the answer to a request that is not let through: 401, 403, 429 or 500; else the request
        tells who it is.

        Args:
            token: That of whoever sends it; empty if there is none.
            verb: To do what with it; by default, what the request does.
        """
        failed = "Authentication failed"
        try:
            async with self._clock.timeout(REVIEW_TIMEOUT):
                user = await self._authenticate(token, request.remote or "")
                name = user.get("username", "")
                failed = f"Authorization for user {name} failed"
                attributes = {"path": path, "verb": verb or request.method.lower()}
                if await self._authorize(user, {"nonResourceAttributes": attributes}):
                    request[USER] = user
                    return None
                return web.Response(status=403, text=f"Authorization denied for user {name}\n")
        except Denied:
            challenge = {"WWW-Authenticate": 'Bearer realm="metrics"'}
            return web.Response(status=401, text="Unauthorized\n", headers=challenge)
        except TooMany as error:
            retry_after = str(math.ceil(error.retry_after))
            return web.Response(status=429, text="Too many refused tokens\n", headers={"Retry-After": retry_after})
        except (KubeError, TimeoutError) as error:
            is_told = isinstance(error, Forbidden) and error.told
            if not is_told and not self._told.try_accept():
                log.warning(
                    "who reads metrics cannot be checked, so they are not served",
                    failed=failed,
                    error=str(error) or f"no answer of the API server within {REVIEW_TIMEOUT:g} s",
                    hint="the manager needs to create tokenreviews and subjectaccessreviews",
                )
            return web.Response(status=500, text=f"{failed}\n")

    async def _authenticate(self, token: str, peer: str) -> JsonObject:
        """Return the user of a token as the API server knows it.

        Raises:
            Denied: The token is not good.
            TooMany: Too many tokens of the peer were refused.
            KubeError: The API server could not be asked.
        """
        if not token:
            raise Denied
        key = token_digest(token)
        async with self._reviewing.turn(key):
            user = self._users.get(key)
            if user is None:
                async with self._throttle.place(peer, key):
                    async with self._places:
                        user = self._users[key] = await review_token(self._client, token) or {}
                    if not user:
                        raise Denied
        if not user:
            raise Denied
        return user

    async def _authorize(self, user: JsonObject, attributes: JsonObject) -> bool:
        key = (json.dumps(user, sort_keys=True), json.dumps(attributes, sort_keys=True))
        async with self._reviewing.turn(key):
            allowed = self._accesses.get(key)
            if allowed is None:
                spec = {"user": user.get("username", ""), **attributes}
                spec |= {name: user[name] for name in ("uid", "groups", "extra") if user.get(name)}
                review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
                async with self._places:
                    status = mapping((await self._client.create(ACCESS_REVIEWS, review)).get("status"))
                allowed = status.get("allowed") is True and status.get("denied") is not True
                self._accesses[key] = allowed
        return allowed


def token_of(request: web.Request) -> str:
    """Return the token that a request has in a header; empty if there is none."""
    headers = request.headers
    return bearer_token(headers.get("Authorization") or headers.get(FORWARDED_AUTHORIZATION))


AddPages: TypeAlias = Callable[[web.Application, DelegatingAuth | None], None]
"""Adds pages to the application of the metrics server, behind its authentication if there is one."""
