"""K-12, P-22: what the process tells about itself."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest
from structlog.testing import capture_logs
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.fatal import main_thread_calls
from trainmaster.controller.manager import loop_monitor
from trainmaster.controller.manager.loop_monitor import STALL, STUCK_AFTER, LoopMonitor, monitored_loop
from trainmaster.metrics.process import PauseHistogram


def value(name: str, **labels: str) -> float:
    found = value_of(name, labels)
    assert found is not None, name
    return found


async def test_k12_the_lag_of_the_loop_is_measured_and_a_stall_is_told_of() -> None:
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
    assert entry["seconds"] > STALL
    assert "test_k12_the_lag_of_the_loop" in entry["running"], "it was seen while it stood still"
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
    assert STUCK_AFTER <= checks * loop_monitor._CHECK_EVERY < STUCK_AFTER + 1
    assert "has not turned for 60 s" in ends[0]


async def test_k12_p30_monitoring_counts_tasks_and_pauses_and_leaves_nothing() -> None:
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


def test_k12_pauses_are_a_histogram_by_generation() -> None:
    pauses = PauseHistogram()
    for seconds in (0.0001, 0.001, 0.3, 99.0):
        pauses.observe(2, seconds)
    (family,) = pauses.collect()
    found = {
        (sample.name.rpartition("_")[2], sample.labels.get("le")): sample.value
        for sample in family.samples
        if sample.labels["generation"] == "2"
    }
    assert (found["bucket", "0.0005"], found["bucket", "0.001"], found["bucket", "0.5"]) == (1, 2, 3)
    assert found["bucket", "+Inf"] == found["count", None] == 4
    assert found["sum", None] == pytest.approx(99.3011)


def test_where_the_main_thread_is_can_be_told_from_any_thread() -> None:
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(main_thread_calls()))
    thread.start()
    thread.join()
    assert "test_where_the_main_thread_is" in told[0]
