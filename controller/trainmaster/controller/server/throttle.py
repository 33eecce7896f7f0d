"""The throttle of token reviews: how many requests to the API server those may cause who have proven nothing yet.

Guarantees:
- A place is taken before anything is asked, and in one step: however many requests come at once, a peer has at most
  `REFUSALS_BURST` refusals, and `REFUSALS_QPS` a second from then on.
- A place is given back unless its holder was refused. So pods behind one address get through one after the other: who
  finds all places of the peer taken waits for one that comes back, and is told to come again only if none can.
- A token that was good within the last hour is reviewed in any case, until it is refused: nobody keeps its holder out.
- At most `MAX_REVIEWS` are under way in total, and memory is kept for those, for `_PEERS` peers and for so many tokens
  only, by what identifies them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

from cachetools import TTLCache

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter

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


class Denied(Exception):
    """Whoever holds the place has proven nothing: a token is not good, or not of this TrainJob."""


class TooMany(Exception):
    """The peer was refused too often, or too much is under way; it may try again after `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class ReviewThrottle:
    """Hands out places.

    Args:
        clock: The time.
    """

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

        Args:
            peer: Who brings the token.
            token: What identifies it.

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
