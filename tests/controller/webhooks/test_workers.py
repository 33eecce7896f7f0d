"""The workers of the webhooks: whose turn it is, and who would wait for too long."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest

from trainmaster.controller.webhooks import Workers
from trainmaster.controller.webhooks import workers as workers_module
from trainmaster.controller.webhooks.workers import LARGE, Overloaded, Worker


@pytest.mark.guarantee("H-16")
async def test_small_reviews_are_judged_on_the_loop_and_large_ones_in_a_thread() -> None:
    with closing(Workers()) as workers:
        assert await workers.of(LARGE).run(LARGE, threading.current_thread) is threading.current_thread()
        assert await workers.of(LARGE + 1).run(LARGE + 1, threading.current_thread) is not threading.current_thread()


@pytest.mark.guarantee("H-16")
async def test_the_loop_turns_between_any_two_small_reviews() -> None:
    """Hundreds that arrive at once are no reason for watches and probes to wait for all of them."""
    worker, turns = Worker(), 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    seen = await asyncio.gather(*(worker.run(100, lambda: turns) for _ in range(300)))
    turning.cancel()
    assert len(set(seen)) == 300
    assert seen == sorted(seen), "first come, first served"


@pytest.mark.guarantee("H-16")
async def test_one_whose_request_is_cancelled_loses_its_turn_and_takes_none_away() -> None:
    worker = Worker()
    judged: list[int] = []
    reviews = [asyncio.create_task(worker.run(100, judged.append, number)) for number in range(5)]
    await asyncio.sleep(0)
    reviews[2].cancel()
    await asyncio.wait(reviews)
    assert judged == [0, 1, 3, 4]
    await worker.run(100, judged.append, 5)
    assert judged[-1] == 5


@pytest.mark.guarantee("H-16")
async def test_what_waits_is_measured_by_what_the_last_reviews_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def take(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(workers_module, "time", SimpleNamespace(perf_counter=lambda: now))
    worker = Worker()
    for _ in range(500):
        await worker.run(1000, take, 0.001)
    held = [asyncio.create_task(worker.run(1000, take, 0.001)) for _ in range(4000)]
    await asyncio.sleep(0)
    assert not worker.is_full, "they will take four seconds"
    more = [asyncio.create_task(worker.run(1000, take, 0.001)) for _ in range(2000)]
    await asyncio.sleep(0)
    assert worker.is_full
    with pytest.raises(Overloaded):
        await worker.run(1000, take, 0.001)
    done = await asyncio.gather(*held, *more, return_exceptions=True)
    refused = [each for each in done if each is not None]
    assert not worker.is_full
    assert 900 < len(refused) < 1100, "those that would have waited for more than five seconds"
    assert {type(each) for each in refused} == {Overloaded}


@pytest.mark.guarantee("H-16")
async def test_one_that_fails_ends_its_turn() -> None:
    worker = Worker()
    with pytest.raises(ZeroDivisionError):
        await worker.run(100, lambda: 1 // 0)
    assert await worker.run(100, lambda: 1) == 1
    assert not worker.is_full
