"""The process: a heap that is frozen, tidied and given back, and a monitored event loop (K-12, P-22)."""

import asyncio
import gc
import platform
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from support.commands import eventually
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.manager import process
from trainmaster.controller.manager.process import (
    STALL,
    STUCK_AFTER,
    LoopMonitor,
    background_task,
    main_thread_calls,
    monitored_loop,
)

LEFT_AFTER_TROUBLE = """
import re
from pathlib import Path
from trainmaster.controller.manager import process

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

if {give_back}:
    process.unmap_freed_blocks()
del (block := bytearray(256 * 1024))[:]
before, kept = resident(), []
del block
blocks = []
for _ in range(200):
    blocks.append(bytearray(256 * 1024))
    kept.append(bytes(1000))
blocks.clear()
print(resident() - before)
"""
"""Prints how many MiB stay behind when 50 MiB of buffers are freed between which small things live on."""


@pytest.fixture
def thawed() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_threads_leave_the_event_loop_a_turn_each_millisecond_and_can_tell_where_it_is() -> None:
    before, told = sys.getswitchinterval(), list[str]()
    try:
        process.switch_threads_often()
        assert sys.getswitchinterval() == pytest.approx(0.001)
    finally:
        sys.setswitchinterval(before)
    thread = threading.Thread(target=lambda: told.append(main_thread_calls()))
    thread.start()
    thread.join()
    assert "test_threads_leave" in told[0]


@pytest.mark.nightly
@pytest.mark.guarantee("P-22")
def test_a_settled_heap_is_out_of_the_collectors_sight(thawed: None) -> None:
    process.freeze()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 1000
    assert gc.get_threshold() == (10_000, 5, 5)


async def test_garbage_is_collected_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(process, "COLLECT_EVERY", 0.01)
    gc.disable()
    try:
        left = weakref.ref(Cycle())
        assert left() is not None
        async with background_task(process.collect_periodically()):
            await eventually(lambda: left() is None)
    finally:
        gc.enable()


@pytest.mark.nightly
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others give back what is freed by themselves")
@pytest.mark.parametrize(("give_back", "at_least", "at_most"), [(True, -5, 5), (False, 40, 60)])
def test_freed_buffers_go_back_to_the_operating_system(give_back: bool, at_least: int, at_most: int) -> None:
    program = LEFT_AFTER_TROUBLE.format(give_back=give_back)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert at_least <= int(done.stdout) <= at_most


def value(name: str, **labels: str) -> float:
    found = value_of(name, labels)
    assert found is not None, name
    return found


@pytest.mark.guarantee("K-12")
async def test_the_lag_of_the_loop_is_measured_and_a_stall_is_told_of() -> None:
    clock = VirtualClock()
    monitor = LoopMonitor(clock=clock)
    monitor.start()
    count = value("trainmaster_event_loop_lag_seconds_count")
    with capture_logs() as logged:
        await clock.advance(1.05)
        assert value("trainmaster_event_loop_lag_seconds_count") == count + 10
        assert logged == []
        beats = monitor.check(monitor.check(-1))
        clock._elapsed += 3600  # nothing ran meanwhile
        clock.step(0)
    assert beats == 10
    assert value("trainmaster_event_loop_lag_worst_seconds") == pytest.approx(3600, abs=0.2)
    (entry,) = logged
    assert entry["log_level"] == "warning"
    assert entry["seconds"] > STALL > entry["cpu_seconds"], "this process had no part in it"
    assert "test_the_lag_of_the_loop" in entry["running"], "it was seen while it stood still"
    monitor.stop()
    await clock.advance(10)
    assert value("trainmaster_event_loop_lag_seconds_count") == count + 11


def test_a_loop_that_never_turns_again_ends_the_process() -> None:
    ends: list[str] = []
    monitor = LoopMonitor(clock=VirtualClock(), end=ends.append)
    beats, checks = -1, 0
    while not ends:
        beats = monitor.check(beats)
        checks += 1
    assert STUCK_AFTER <= checks * process._CHECK_EVERY < STUCK_AFTER + 1
    assert "has not turned for 60 s" in ends[0]


@pytest.mark.guarantee("K-12", "P-30")
async def test_monitoring_counts_tasks_and_pauses_and_leaves_nothing() -> None:
    before, threads = len(gc.callbacks), threading.active_count()
    async with monitored_loop():
        tasks = value("trainmaster_asyncio_tasks")
        pauses = value("trainmaster_gc_pause_seconds_count", generation="2")
        waiting = asyncio.create_task(asyncio.Event().wait())
        gc.collect()
        assert value("trainmaster_asyncio_tasks") == tasks + 1
        assert value("trainmaster_gc_pause_seconds_count", generation="2") >= pauses + 1
        waiting.cancel()
    assert value("trainmaster_asyncio_tasks") == 0
    assert (len(gc.callbacks), threading.active_count()) == (before, threads)
