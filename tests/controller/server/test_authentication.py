"""The throttle of token reviews: places are taken in one step, and come back unless their holder was refused."""

import asyncio

import pytest
from support.virtualtime import VirtualClock

from trainmaster.controller.server import authentication
from trainmaster.controller.server.authentication import (
    MAX_REVIEWS,
    REFUSALS_BURST,
    REFUSALS_QPS,
    RETRY_WHEN_FULL,
    Denied,
    ReviewThrottle,
    TooMany,
)


class Reviews:
    """Reviews that a test lets end, in the order in which they got their places."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.places = ReviewThrottle(clock=self.clock)
        self.under_way: list[asyncio.Future[None]] = []

    async def review(self, peer: str, token: object = None) -> str:
        try:
            async with self.places.place(peer, token or object()):
                ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self.under_way.append(ended)
                await ended
        except Denied:
            return "denied"
        except TooMany as error:
            return f"in {error.retry_after:g} s"
        return "accepted"

    async def start(self, peer: str, count: int) -> list[asyncio.Task[str]]:
        tasks = [asyncio.create_task(self.review(peer)) for _ in range(count)]
        await self.settle()
        return tasks

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self, count: int, *, refused: bool) -> None:
        for _ in range(count):
            ended = self.under_way.pop(0)
            if refused:
                ended.set_exception(Denied())
            else:
                ended.set_result(None)
        await self.settle()


async def test_in_total_only_so_many_are_under_way() -> None:
    reviews = Reviews()
    tasks = [task for peer in range(MAX_REVIEWS + 5) for task in await reviews.start(f"peer-{peer}", 1)]
    assert len(reviews.under_way) == MAX_REVIEWS
    assert [task.result() for task in tasks if task.done()] == [f"in {RETRY_WHEN_FULL:g} s"] * 5
    await reviews.end(MAX_REVIEWS, refused=False)
    await reviews.start("peer-0", 1)
    assert len(reviews.under_way) == 1
    await reviews.end(1, refused=False)


async def test_who_gives_up_gives_the_place_back_and_after_refusals_there_is_one_each_five_seconds() -> None:
    reviews = Reviews()
    given_up = await reviews.start("a", REFUSALS_BURST * 2)
    for task in given_up:
        task.cancel()
    await reviews.settle()
    reviews.under_way.clear()
    await reviews.start("a", REFUSALS_BURST)
    assert len(reviews.under_way) == REFUSALS_BURST
    await reviews.end(REFUSALS_BURST, refused=True)
    reviews.clock.step(1 / REFUSALS_QPS)
    tasks = await reviews.start("a", 3)
    assert len(reviews.under_way) == 1
    await reviews.end(1, refused=True)
    assert [task.result() for task in tasks] == ["denied", "in 5 s", "in 5 s"]


async def test_a_token_that_was_good_needs_no_place_until_it_is_refused() -> None:
    reviews = Reviews()

    async def reviewed(*, refused: bool) -> str:
        task = asyncio.create_task(reviews.review("a", "good"))
        await reviews.settle()
        if not task.done():
            await reviews.end(1, refused=refused)
        return await task

    assert await reviewed(refused=False) == "accepted"
    await reviews.start("a", REFUSALS_BURST)
    await reviews.end(REFUSALS_BURST, refused=True)
    assert [await reviewed(refused=refused) for refused in (False, True, False)] == ["accepted", "denied", "in 5 s"]
    # It is forgotten in time.
    await reviews.clock.advance(60)
    assert await reviewed(refused=False) == "accepted"
    await reviews.clock.advance(authentication.GOOD_FOR + 1)
    await reviews.start("a", REFUSALS_BURST)
    await reviews.end(REFUSALS_BURST, refused=True)
    assert await reviewed(refused=False) == "in 5 s"


async def test_memory_is_kept_for_so_many_peers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_PEERS", 3)
    reviews = Reviews()
    for peer in range(100):
        await reviews.start(f"peer-{peer}", 2)
        await reviews.end(2, refused=peer % 2 == 0)
    assert not reviews.places._under_way
    assert not reviews.places._ended
    assert len(reviews.places._refusals._buckets) == 3
