"""Stacks of tasks and threads: what is shown, and what is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from trainmaster.controller.debugging import stacks
from trainmaster.controller.debugging.stacks import task_stacks, thread_stacks

SECRET = "hunter2-in-a-variable"


async def wait_for(event: asyncio.Event) -> None:
    password = SECRET
    await event.wait()
    assert password


async def outer(event: asyncio.Event) -> None:
    await wait_for(event)


async def generated(event: asyncio.Event) -> AsyncIterator[int]:
    await wait_for(event)
    yield 1


async def collect(event: asyncio.Event) -> None:
    async for _ in generated(event):
        pass


@pytest.mark.guarantee("M-9")
async def test_tasks_that_wait_at_one_place_are_shown_once_down_to_the_innermost_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(outer(event), name=f"worker-{number:02}")
        await asyncio.sleep(0)
        text = task_stacks(asyncio.get_running_loop())
        event.set()
    assert text.startswith("21 tasks\n\n20 x worker-00, worker-01, worker-02,")
    assert "worker-07 and 12 more\n" in text
    group = text.split("\n\n")[1].splitlines()[1:]
    assert [line.split(":")[0].rpartition(".")[2] for line in group] == ["outer", "wait_for", "wait"]
    assert group[0].startswith(f"    {__name__}.outer:")
    assert SECRET not in text
    # The text has bounds.
    monkeypatch.setattr(stacks, "MAX_TASKS", 5)
    event = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(9):
            tasks.create_task(outer(event))
        await asyncio.sleep(0)
        text = task_stacks(asyncio.get_running_loop())
        event.set()
    assert text.startswith("10 tasks\n")
    assert text.endswith("\n5 tasks are not shown\n")


@pytest.mark.guarantee("M-9")
async def test_tasks_within_generators_and_those_that_run_are_shown() -> None:
    event = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(collect(event), name="collector")
        await asyncio.sleep(0)
        text = task_stacks(asyncio.get_running_loop())
        event.set()
    assert "1 x collector\n" in text
    assert f"{__name__}.collect:" in text
    assert "test_tasks_within_generators_and_those_that_run_are_shown:" in text


@pytest.mark.guarantee("M-9")
def test_threads_are_shown_by_name() -> None:
    ended = threading.Event()

    def wait_here(password: str) -> None:
        ended.wait()

    thread = threading.Thread(target=wait_here, args=(SECRET,), name="a thread of ours")
    thread.start()
    text = thread_stacks()
    ended.set()
    thread.join()
    (ours,) = [part for part in text.split("\n\n") if part.startswith("a thread of ours\n")]
    assert f"    {__name__}.test_threads_are_shown_by_name.<locals>.wait_here:" in ours
    assert "MainThread\n" in text
    assert SECRET not in text
