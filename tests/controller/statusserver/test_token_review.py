"""Reviews of tokens, and for how long they are good."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, cast

import orjson
import pytest
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.statusserver import token_review
from trainmaster.controller.statusserver.token_review import ACCEPTED_FOR, REFUSED_FOR, PodIdentity, TokenReviewer
from trainmaster.runtime.jsontree import JsonObject

AUDIENCE = "the status server"


class ApiServer:
    """Authenticates every token, or none; counts."""

    def __init__(self, *, accept: bool = True) -> None:
        self.reviews = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self._accept = accept

    async def create(self, _resource: Any, review: JsonObject) -> JsonObject:
        self.reviews += 1
        await self.hold.wait()
        bound = {"authentication.kubernetes.io/pod-name": ["p"], "authentication.kubernetes.io/pod-uid": ["u"]}
        user = {"username": "system:serviceaccount:team:default", "extra": bound}
        return {"status": {"authenticated": self._accept, "audiences": review["spec"]["audiences"], "user": user}}


class Reviewed:
    """A reviewer with a clock of its own."""

    def __init__(self, *, accept: bool = True) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(accept=accept)
        self._reviewer = TokenReviewer(cast("KubeClient", self.server), clock=self.clock)

    def token(self, name: str, *, lives: float = 3600) -> str:
        claims = {"aud": [AUDIENCE], "exp": self.clock.now().timestamp() + lives, "name": name}
        return f"a.{base64.urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip('=')}.c"

    async def review(self, token: str) -> PodIdentity | None:
        return await self._reviewer.review(token, audience=AUDIENCE)

    async def is_cached(self, token: str) -> bool:
        before = self.server.reviews
        await self.review(token)
        return self.server.reviews == before

    def may_be_good(self, token: str) -> bool:
        return self._reviewer.may_be_good(token, audience=AUDIENCE)


@pytest.mark.parametrize(("accept", "seconds"), [(True, ACCEPTED_FOR), (False, REFUSED_FOR)])
async def test_a_review_is_good_for_a_while(accept: bool, seconds: float) -> None:
    reviewed = Reviewed(accept=accept)
    token = reviewed.token("a")
    pods = {await reviewed.review(token) for _ in range(3)}
    assert pods == {PodIdentity("team", "p", "u") if accept else None}
    reviewed.clock.step(seconds - 1)
    assert reviewed.may_be_good(token) == accept
    assert await reviewed.is_cached(token)
    reviewed.clock.step(1)
    assert reviewed.may_be_good(token)
    assert not await reviewed.is_cached(token)


async def test_no_review_is_good_for_longer_than_its_token() -> None:
    reviewed = Reviewed()
    token = reviewed.token("a", lives=5)
    assert await reviewed.review(token) is not None
    reviewed.clock.step(5)
    assert not reviewed.may_be_good(token)
    assert await reviewed.review(token) is None


async def test_only_so_many_reviews_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_review, "CACHE_SIZE", 2)
    reviewed = Reviewed()
    a, b, c = (reviewed.token(name) for name in "abc")
    for token in (a, b, a, c):
        await reviewed.review(token)
    assert [await reviewed.is_cached(token) for token in (a, c, b)] == [True, True, False], "b was not needed longest"


async def test_who_gives_up_a_review_leaves_it_to_the_next_who_waits_for_it() -> None:
    reviewed = Reviewed()
    token = reviewed.token("a")
    reviewed.server.hold = asyncio.Event()
    first, second = (asyncio.create_task(reviewed.review(token)) for _ in range(2))
    while reviewed.server.reviews == 0:
        await asyncio.sleep(0)
    first.cancel()
    reviewed.server.hold.set()
    assert await second == PodIdentity("team", "p", "u")
    assert reviewed.server.reviews == 2
