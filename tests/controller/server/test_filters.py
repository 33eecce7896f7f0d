"""Who may read metrics: what the API server says of tokens and users, and for how long."""

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.commands import eventually
from support.virtualtime import VirtualClock
from support.web import listening

from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError, NotConnected
from trainmaster.controller.server import filters
from trainmaster.controller.server.authentication import REFUSALS_BURST, REFUSALS_QPS, Denied
from trainmaster.controller.server.filters import (
    ALLOWED_FOR,
    AUTHENTICATED_FOR,
    DENIED_FOR,
    REFUSED_FOR,
    DelegatingAuth,
)
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.guarantee("M-6")

GOOD = "Bearer good"


@dataclass
class ApiServer:
    """Authenticates tokens that do not begin with `bad`, and allows those of `good`."""

    seen: list[JsonObject] = field(default_factory=list)
    fails: dict[str, Exception] = field(default_factory=dict)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self.hold.set()

    async def create(self, resource: Any, review: JsonObject) -> JsonObject:
        self.seen.append(review)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self.hold.wait()
        finally:
            self.at_once -= 1
        if resource.kind in self.fails:
            raise self.fails[resource.kind]
        spec = review["spec"]
        if resource.kind == "TokenReview":
            token = spec["token"]
            return {"status": {"authenticated": not token.startswith("bad"), "user": {"username": token, "uid": "u"}}}
        return {"status": {"allowed": spec["user"] == "good", "reason": "by a role"}}

    def count(self) -> Counter[str]:
        return Counter(review["kind"] for review in self.seen)


def guarded(server: ApiServer, clock: Clock | None = None) -> AbstractAsyncContextManager[int]:
    """Serve a secret to whom the API server lets in; yields the port."""

    async def secret(_request: web.Request) -> web.Response:
        return web.Response(text="secret")

    auth = DelegatingAuth(cast("KubeClient", server), clock=clock or SystemClock())
    app = web.Application(middlewares=[auth.middleware])
    app.add_routes([web.get("/metrics", secret)])
    return listening(app)


async def get(port: int, authorization: str | None = GOOD) -> tuple[int, str]:
    headers = {"Authorization": authorization} if authorization is not None else {}
    async with aiohttp.request("GET", f"http://127.0.0.1:{port}/metrics", headers=headers) as answer:
        return answer.status, await answer.text()


async def test_only_who_is_authenticated_and_allowed_reads() -> None:
    server = ApiServer()
    async with guarded(server) as port:
        assert await get(port, None) == (401, "Unauthorized\n")
        assert await get(port, "Basic good") == (401, "Unauthorized\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 401 Unauthorized\r\n"
        writer.close()
        assert server.seen == [], "nobody is asked for who brings no token, or one of odd bytes"
        assert await get(port, "Bearer bad") == (401, "Unauthorized\n")
        assert await get(port, "Bearer other") == (403, "Authorization denied for user other\n")
        assert await get(port) == (200, "secret")
    assert server.seen[-1]["spec"] == {
        "user": "good",
        "uid": "u",
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_while_the_api_server_cannot_be_asked_nothing_is_served() -> None:
    with capture_logs() as logged:
        for kind, error, text in (
            ("TokenReview", NotConnected("down"), "Authentication failed\n"),
            ("TokenReview", KubeError("forbidden"), "Authentication failed\n"),
            ("SubjectAccessReview", NotConnected("down"), "Authorization for user good failed\n"),
        ):
            server = ApiServer(fails={kind: error})
            async with guarded(server) as port:
                for _ in range(3):
                    assert await get(port) == (500, text)
                server.fails.clear()
                assert await get(port) == (200, "secret"), "a failure is not remembered"
    assert len(logged) == 3, "once for each server, however many ask"
    assert "Bearer" not in str(logged)


async def test_an_api_server_that_does_not_answer_costs_ten_seconds() -> None:
    server, clock = ApiServer(), VirtualClock()
    server.hold.clear()
    async with guarded(server, clock) as port:
        asking = asyncio.create_task(get(port))
        await eventually(lambda: server.seen)
        await clock.advance(filters.REVIEW_TIMEOUT + 0.1)
        assert await asking == (500, "Authentication failed\n")


async def test_results_are_cached_for_as_long_as_controller_runtime_does() -> None:
    server, clock = ApiServer(), VirtualClock()
    async with guarded(server, clock) as port:

        async def asked(authorization: str) -> Counter[str]:
            before = server.count()
            await get(port, authorization)
            return server.count() - before

        both = Counter(TokenReview=1, SubjectAccessReview=1)
        for authorization in (GOOD, "Bearer other"):
            assert await asked(authorization) == both
            assert await asked(authorization) == Counter()
        assert await asked("Bearer bad") == Counter(TokenReview=1)
        assert await asked("Bearer bad") == Counter()
        await clock.advance(REFUSED_FOR)
        assert await asked("Bearer bad") == Counter(TokenReview=1)
        await clock.advance(DENIED_FOR - REFUSED_FOR)
        assert await asked("Bearer other") == Counter(SubjectAccessReview=1)
        await clock.advance(AUTHENTICATED_FOR - DENIED_FOR)
        assert await asked(GOOD) == Counter(TokenReview=1)
        await clock.advance(ALLOWED_FOR - AUTHENTICATED_FOR)
        assert await asked(GOOD) == both
    assert (AUTHENTICATED_FOR, ALLOWED_FOR, DENIED_FOR) == (60, 300, 30)


async def test_a_flood_is_a_few_reviews_at_once_and_one_for_each_token() -> None:
    server = ApiServer()
    server.hold.clear()
    async with guarded(server, VirtualClock()) as port:
        asking = [asyncio.create_task(get(port, f"Bearer other-{number % 10}")) for number in range(40)]
        await eventually(lambda: server.at_once == filters.REVIEWS_AT_ONCE)
        server.hold.set()
        assert {status for status, _ in await asyncio.gather(*asking)} == {403}
    assert server.most_at_once == filters.REVIEWS_AT_ONCE
    assert server.count()["TokenReview"] == 10


async def test_forged_tokens_cause_a_few_reviews_and_keep_nobody_out_whose_token_was_good() -> None:
    server, clock = ApiServer(), VirtualClock()
    async with guarded(server, clock) as port:
        assert (await get(port))[0] == 200
        answers = [await get(port, f"Bearer bad-{number}") for number in range(40)]
        assert Counter(status for status, _ in answers) == {401: REFUSALS_BURST, 429: 40 - REFUSALS_BURST}
        assert answers[-1][1] == "Too many refused tokens\n"
        assert server.count()["TokenReview"] == 1 + REFUSALS_BURST
        assert (await get(port, "Bearer bad-0"))[0] == 401, "what is known costs no review"
        await clock.advance(AUTHENTICATED_FOR)
        assert (await get(port))[0] == 200, "reviewed again, although the peer was refused too often"
        await clock.advance(1 / REFUSALS_QPS)
        assert (await get(port, "Bearer bad-40"))[0] == 401


async def test_what_is_remembered_is_bounded_and_holds_no_token() -> None:
    auth = DelegatingAuth(cast("KubeClient", ApiServer()), clock=SystemClock())
    for number in range(filters.CACHE_SIZE + 10):
        with pytest.raises(Denied):
            await auth._authenticate(f"bad-token-{number}", f"10.0.{number >> 8}.{number & 255}")
    assert len(auth._users) == filters.CACHE_SIZE
    assert "bad-token" not in repr(list(auth._users.items()))
