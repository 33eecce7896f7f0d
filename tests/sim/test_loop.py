"""The virtual event loop: time that jumps, programs that stand still."""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

import pytest
from support.sim.loop import PROCESS, Deadlock, Process, SimClock, Spinning, VirtualLoop

T = TypeVar("T")


def play(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Run something on a virtual loop; returns its result and how long it took in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work), runner.get_loop().time()


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_waiting_for_nothing_is_a_deadlock() -> None:
    with pytest.raises(Deadlock):
        play(asyncio.Event().wait())


def test_a_loop_that_lets_no_time_pass_is_noticed() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Spinning):
        play(spin())


def test_a_program_that_is_paused_in_the_middle_of_a_turn_does_nothing_more_in_it() -> None:
    async def pausing() -> list[list[str]]:
        loop, process = virtual_loop(), Process("paused")
        done: list[str] = []
        context = copy_context()
        context.run(PROCESS.set, process)
        loop.call_soon(loop.pause, process)
        loop.call_soon(done.append, "paused", context=context)
        loop.call_soon(done.append, "other")
        await asyncio.sleep(1.0)
        before = list(done)
        loop.resume(process)
        await asyncio.sleep(1.0)
        return [before, done]

    seen, _ = play(pausing())
    assert seen == [["other"], ["other", "paused"]]


def test_timers_of_no_time_at_all_are_noticed_as_well() -> None:
    async def spin() -> None:
        loop = virtual_loop()

        def again() -> None:
            loop.call_at(loop.time(), again)

        again()
        await asyncio.sleep(1.0)

    with pytest.raises(Spinning):
        play(spin())


def test_a_machine_that_slept_finds_its_timers_as_far_away_as_before() -> None:
    async def sleeping() -> tuple[float, float, float]:
        loop, process = virtual_loop(), Process("asleep")
        clock = SimClock(loop)

        async def timer() -> tuple[float, float, float]:
            await clock.sleep(5.0)
            return loop.time(), clock.monotonic(), clock.boottime()

        def wake() -> None:
            clock.slept += 100.0
            loop.resume(process, uncounted=100.0)

        context = copy_context()
        context.run(PROCESS.set, process)
        task = loop.create_task(timer(), context=context)
        loop.call_later(2.0, loop.pause, process)
        loop.call_later(102.0, wake)
        return await task

    woken, _ = play(sleeping())
    assert woken == pytest.approx((105.0, 5.0, 105.0))
