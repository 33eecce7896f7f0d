"""Bearer tokens: how they come with a request, what the API server says of them (TokenReview), and how many reviews
those may cause who have proven nothing yet.

Guarantees:
- A token itself is kept nowhere: what is remembered is remembered by its digest.
- A place is taken before anything is asked, and in one step: however many requests come at once, a peer has at most
  `REFUSALS_BURST` refusals, and `REFUSALS_QPS` a second from then on.
- A place is given back unless its holder was refused. So pods behind one address get through one after the other: who
  finds all places of the peer taken waits for one that comes back, and is told to come again only if none can.
- A token that was good within the last hour is reviewed in any case, until it is refused: nobody keeps its holder out.
- At most `MAX_REVIEWS` are under way in total, and memory is kept for those, for `_PEERS` peers and for so many tokens
  only.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar

from cachetools import TTLCache

from trainmaster.controller.job_fields import mapping
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import BadRequest, Invalid
from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter
from trainmaster.controller.kube.rest.resources import ACCESS_REVIEWS, Resource
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.runtime.jsontree import JsonObject

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)

REFUSALS_QPS: Final = 0.2
REFUSALS_BURST: Final = 10
"""For each peer: a trainer whose token has just ended, or whose TrainJob was deleted, is refused a few times."""

MAX_REVIEWS: Final = 64
RETRY_WHEN_FULL: Final = 1.0
"""Seconds after which to try again when as many are under way."""

GOOD_FOR: Final = 3600.0
_GOOD_TOKENS: Final = 16_384
"""For how many seconds, and of how many tokens, it is known that they were good; Kubernetes renews them hourly."""

_PEERS: Final = 4096

K = TypeVar("K", bound=Hashable)


def policy_rules(needed_by: str, reason: str) -> tuple[PolicyRule, ...]:
    """Return the right that `review_token` needs, for a part that calls it."""
    return (PolicyRule(resource=TOKEN_REVIEWS, verbs=("create",), needed_by=needed_by, reason=reason),)


METRICS_RULES: Final = (
    *policy_rules("metrics.auth", "find out who reads metrics"),
    PolicyRule(
        resource=ACCESS_REVIEWS, verbs=("create",), needed_by="metrics.auth", reason="find out whether they may"
    ),
)
"""The rights that `filters.DelegatingAuth` needs; here, where nothing of HTTP is imported."""


def bearer_token(header: str | None) -> str:
    """Read the token of an Authorization header: two words of ASCII, the first one `Bearer` in any case."""
    words = (header or "").split()
    return words[1] if len(words) == 2 and words[0].lower() == "bearer" and words[1].isascii() else ""


def token_digest(token: str) -> bytes:
    """Return what a token is known by; the token cannot be told from it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


async def review_token(client: KubeClient, token: str, *, audience: str = "") -> JsonObject | None:
    """Have a token reviewed; returns its user as the API server knows it, None if the token is not good.

    Args:
        audience: For whom it must have been issued; empty for the API server itself.

    Raises:
        KubeError: The API server could not be asked.
    """
    spec: JsonObject = {"token": token, **({"audiences": [audience]} if audience else {})}
    review = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": spec}
    try:
        status = mapping((await client.create(TOKEN_REVIEWS, review)).get("status"))
    except (BadRequest, Invalid):
        return None
    if status.get("authenticated") is not True:
        return None
    # An authenticator that knows nothing of audiences returns none: its tokens are for everybody.
    if audience and audience not in texts_of(status.get("audiences")):
        return None
    return mapping(status.get("user"))


def texts_of(value: Any) -> list[str]:
    """Read a list of texts, or a single one, which RFC 7519 allows for an audience."""
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str) and text]


class Denied(Exception):
    """Whoever holds the place has proven nothing: a token is not good, or not of this TrainJob."""


class TooMany(Exception):
    """The peer was refused too often, or too much is under way; it may try again after `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class ReviewThrottle:
    """Hands out places."""

    def __init__(self, *, clock: Clock) -> None:
        self._refusals: KeyedRateLimiter[str] = KeyedRateLimiter(
            qps=REFUSALS_QPS, burst=REFUSALS_BURST, maxsize=_PEERS, clock=clock
        )
        self._under_way: Counter[str] = Counter()
        self._ended: dict[str, asyncio.Event] = {}
        self._good: TTLCache[Hashable, None] = TTLCache(_GOOD_TOKENS, ttl=GOOD_FOR, timer=clock.monotonic)

    @asynccontextmanager
    async def place(self, peer: str, token: Hashable) -> AsyncIterator[None]:
        """Hold a place of a peer during the block, unless the token was good before.

        The place is lost if the block raises `Denied`; otherwise the token is good.

        Raises:
            TooMany: There is none.
        """
        needs_place = token not in self._good
        if needs_place:
            await self._take(peer)
        denied = False
        try:
            yield
            self._good[token] = None
        except Denied:
            denied = True
            self._good.pop(token, None)
            raise
        finally:
            if needs_place:
                self._end(peer, denied=denied)

    def _end(self, peer: str, *, denied: bool) -> None:
        if not denied:
            self._refusals.give_back(peer)
        self._under_way[peer] -= 1
        if not self._under_way[peer]:
            del self._under_way[peer]
        ended = self._ended.pop(peer, None)
        if ended is not None:
            ended.set()

    async def _take(self, peer: str) -> None:
        while True:
            if self._under_way.total() >= MAX_REVIEWS:
                raise TooMany(RETRY_WHEN_FULL)
            delay = self._refusals.try_accept(peer)
            if not delay:
                self._under_way[peer] += 1
                return
            if peer not in self._under_way:
                raise TooMany(delay)
            await self._ended.setdefault(peer, asyncio.Event()).wait()


class SingleFlight(Generic[K]):
    """Blocks of which one runs at a time for each key, as golang.org/x/sync has it.

    Who comes meanwhile waits, and finds the result where the block has put it. One that failed or was cancelled leaves
    its turn to the next: nobody gets an error that was another's.
    """

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, key: K) -> AsyncIterator[None]:
        """Run the block when no other of the key runs; it looks for the result first."""
        while (ended := self._running.get(key)) is not None:
            await ended.wait()
        self._running[key] = ended = asyncio.Event()
        try:
            yield
        finally:
            del self._running[key]
            ended.set()
