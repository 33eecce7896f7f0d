"""Profiles on request: one at a time, bounded, of every thread."""

from __future__ import annotations

import asyncio
import threading

import pytest
from support.commands import eventually

from trainmaster.controller.debugging import profile
from trainmaster.controller.debugging.profile import Profiler, ProfileRunning


async def profile_with(*parts: str) -> str:
    """A profile that was taken for so long that it has these parts."""

    async def taken() -> str:
        text = await Profiler().profile(0.05)
        return text if all(part in text for part in parts) else ""

    return str(await eventually(taken))


@pytest.mark.guarantee("M-9")
async def test_a_profile_has_the_stacks_of_all_threads_with_their_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute, name="computing")
    thread.start()
    try:
        text = await profile_with(f"{__name__}.test_a_profile", "MainThread;")
    finally:
        ended.set()
        thread.join()
    stacks = dict(line.rsplit(" ", 1) for line in text.splitlines())
    assert all(int(count) > 0 for count in stacks.values())
    (computing,) = {stack.partition(";threading.Thread.run")[0] for stack in stacks if stack.startswith("computing;")}
    assert computing.startswith("computing;threading.Thread._bootstrap;")
    assert any(f"{__name__}.test_a_profile" in stack and stack.startswith("computing;") for stack in stacks)
    assert not any(stack.startswith("profiler") for stack in stacks)
    # Stacks beyond a bound are counted together.
    monkeypatch.setattr(profile, "_MAX_STACKS", 0)
    text = await profile_with("MainThread;(others) ")
    assert all(";(others) " in line for line in text.splitlines())


@pytest.mark.guarantee("M-9")
async def test_profiles_are_taken_one_at_a_time_and_leave_no_thread() -> None:
    profiler = Profiler()
    running = asyncio.create_task(profiler.profile(60))
    await asyncio.sleep(0)
    with pytest.raises(ProfileRunning):
        await profiler.profile(1)
    running.cancel()
    await asyncio.wait([running])
    assert "profiler" not in {thread.name for thread in threading.enumerate()}
    assert await eventually(lambda: profiler.profile(0.05))
