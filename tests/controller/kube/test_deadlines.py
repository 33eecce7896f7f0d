"""Deadlines of many blocks at a time: each ends as `asyncio.timeout` would have ended it, by one timer for all."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.deadlines import Deadlines

LIMIT = 10.0


async def outcome(deadlines: Deadlines, seconds: float, clock: VirtualClock) -> str:
    try:
        with deadlines.begin():
            await clock.sleep(seconds)
    except TimeoutError:
        return f"late at {clock.monotonic():g}"
    return f"done at {clock.monotonic():g}"


@given(blocks=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 25)), max_size=12))
def test_each_block_ends_when_it_is_done_or_due(blocks: list[tuple[int, int]]) -> None:
    async def run() -> list[str]:
        clock = VirtualClock()
        deadlines = Deadlines(clock, LIMIT + 0.5)

        async def block(start: int, seconds: int) -> str:
            await clock.sleep(start)
            return await outcome(deadlines, seconds, clock)

        tasks = [asyncio.create_task(block(*each)) for each in blocks]
        await clock.advance(100)
        return [task.result() for task in tasks]

    assert asyncio.run(run()) == [
        f"done at {start + seconds}" if seconds <= LIMIT else f"late at {start + LIMIT + 0.5:g}"
        for start, seconds in blocks
    ]


async def test_a_task_whose_block_was_late_is_not_cancelled_any_more() -> None:
    clock = VirtualClock()
    deadlines = Deadlines(clock, LIMIT)

    async def twice() -> tuple[str, str, int]:
        results = await outcome(deadlines, 60, clock), await outcome(deadlines, 1, clock)
        task = asyncio.current_task()
        assert task is not None
        return *results, task.cancelling()

    task = asyncio.create_task(twice())
    await clock.advance(20)
    assert await task == ("late at 10", "done at 11", 0)


@pytest.mark.parametrize("late", [False, True])
async def test_a_cancellation_from_outside_stays_one(late: bool) -> None:
    clock = VirtualClock()
    task = asyncio.create_task(outcome(Deadlines(clock, LIMIT), 60, clock))
    await settle()
    if late:
        clock.step(LIMIT)  # both before the task has its turn
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_an_error_of_the_block_stays_what_it_is_when_it_is_late_too() -> None:
    clock = VirtualClock()

    async def failing() -> None:
        with Deadlines(clock, LIMIT).begin():
            try:
                await clock.sleep(60)
            finally:
                raise LookupError

    task = asyncio.create_task(failing())
    await clock.advance(LIMIT)
    with pytest.raises(LookupError):
        await task
    assert task.cancelling() == 0


async def test_what_was_closed_can_be_used_again() -> None:
    clock = VirtualClock()
    deadlines = Deadlines(clock, LIMIT)
    assert await outcome(deadlines, 0, clock) == "done at 0"
    deadlines.close()
    task = asyncio.create_task(outcome(deadlines, 60, clock))
    await clock.advance(LIMIT)
    assert await task == "late at 10"
