"""Token buckets, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter, RateLimiter


@pytest.mark.guarantee("T-1")
async def test_burst_at_once_then_so_many_a_second() -> None:
    clock = VirtualClock()
    limiter = RateLimiter(qps=10, burst=3, clock=clock)
    passed: list[float] = []

    async def request() -> None:
        await limiter.wait()
        passed.append(round(clock.monotonic(), 6))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(request())
        await settle()
        assert passed == [0, 0, 0]
        await clock.advance(1)
    assert passed == [0, 0, 0, 0.1, 0.2, 0.3]


@pytest.mark.guarantee("T-1")
async def test_tokens_come_back_up_to_the_burst() -> None:
    clock = VirtualClock()
    limiter = RateLimiter(qps=10, burst=2, clock=clock)
    for _ in range(2):
        await limiter.wait()
    await clock.advance(3600)
    for _ in range(2):
        await limiter.wait()
    third = asyncio.create_task(limiter.wait())
    await clock.advance(0.05)
    assert not third.done()
    await clock.advance(0.05)
    assert third.done()


@pytest.mark.guarantee("T-1")
async def test_cancelled_request_gives_its_token_back() -> None:
    clock = VirtualClock()
    limiter = RateLimiter(qps=1, burst=1, clock=clock)
    await limiter.wait()
    cancelled = asyncio.create_task(limiter.wait())
    await settle()
    cancelled.cancel()
    await settle()
    following = asyncio.create_task(limiter.wait())
    await clock.advance(1)
    assert following.done()


@pytest.mark.parametrize(("qps", "burst"), [(0.0, 1), (-1.0, 1), (5.0, 0)])
def test_impossible_limits(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="positive qps and burst"):
        RateLimiter(qps=qps, burst=burst, clock=VirtualClock())


def test_each_key_has_its_own_bucket() -> None:
    clock = VirtualClock()
    limiter: KeyedRateLimiter[str] = KeyedRateLimiter(qps=0.5, burst=2, maxsize=100, clock=clock)
    assert [limiter.try_accept("a") for _ in range(3)] == [0, 0, 2]
    assert limiter.try_accept("b") == 0
    clock.step(1)
    assert limiter.try_accept("a") == 1
    clock.step(1)
    assert (limiter.try_accept("a"), limiter.try_accept("a")) == (0, 2)
    single = RateLimiter(qps=0.5, burst=1, clock=clock)
    assert (single.delay(), single.try_accept(), single.delay()) == (0, 0, 2)


def test_of_too_many_keys_the_one_that_came_longest_ago_starts_over() -> None:
    limiter: KeyedRateLimiter[str] = KeyedRateLimiter(qps=1, burst=1, maxsize=2, clock=VirtualClock())
    assert [limiter.try_accept(key) for key in ("a", "b", "a", "c")] == [0, 0, 1, 0]
    assert [limiter.try_accept(key) for key in ("a", "c", "b")] == [1, 1, 0]


def test_what_was_taken_for_nothing_can_be_given_back() -> None:
    limiter: KeyedRateLimiter[str] = KeyedRateLimiter(qps=0.5, burst=2, maxsize=1, clock=VirtualClock())
    assert [limiter.try_accept("a") for _ in range(3)] == [0, 0, 2]
    limiter.give_back("a")
    assert [limiter.try_accept("a") for _ in range(2)] == [0, 2]
    for _ in range(5):
        limiter.give_back("a")
    assert [limiter.try_accept("a") for _ in range(3)] == [0, 0, 2], "no more than the burst"
    limiter.give_back("forgotten")
