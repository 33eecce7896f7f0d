"""The process of the manager: its event loop and the health of that, and its heap.

Guarantees:
- The event loop is uvloop's where that is installed, as in the image, and otherwise Python's; the manager does the same
  on either, and the first line of its log names it. The lease is renewed on a loop of its own, Python's in any case.
- P-22: `freeze` takes everything that is there for good out of the sight of the garbage collector.
- A connection that broke leaves a cycle behind, in the tracebacks of its errors, which holds a quarter of a mebibyte of
  TLS buffers that the collector does not see. `collect_periodically` finds such garbage also while nothing happens.
- Freed buffers go back to the operating system (`unmap_freed_blocks`), so a flood of failures leaves no larger process.
- Threads that compute, as those for what is large, leave the event loop its turns (`switch_threads_often`).
- K-12: the lag of the loop, the pauses of the garbage collector and the number of tasks are measured. The lag is taken
  ten times a second; a stall of `STALL` or more is logged with what ran meanwhile, and the CPU that the process had:
  where that is much less, the machine was busy with others.
- A loop that has stood still for `STUCK_AFTER` ends the process: its lease is renewed by another thread (L-15), so
  nobody else would ever lead. Time in which the whole process was stopped does not count.
- P-30: `background_task` and `cancel_and_wait` return when what they own has ended.
- P-34: tests of the election and the manager run with the loop in debug mode; here it is watched in production.

The monitor belongs to the process, not to a manager: there may be several of those, as in tests.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

import structlog

from trainmaster.controller.kube.clock import Clock, SystemClock, Timer
from trainmaster.metrics import process as series

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

COLLECT_EVERY: Final = 15.0
"""Seconds."""

_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 128 * 1024
"""Bytes; the value with which glibc begins."""

_SWITCH_INTERVAL: Final = 0.001
"""Seconds."""

STALL: Final = 0.5
"""Seconds; renewals and probes are late by now, and so is everybody who waits."""

STUCK_AFTER: Final = 60.0
"""Seconds; nothing that ends takes so long, and a liveness probe, if there is one, gives up before."""

_LOG_AT_MOST: Final = 0.5
"""Seconds; the thread that is stuck may hold the lock of the logs, or nobody may read them."""

_CALLS: Final = 4

_BEAT_EVERY: Final = 0.1
_CHECK_EVERY: Final = 0.25
"""Seconds between two checks by the watching thread; a stall is seen at least once before it is one."""


def end_process(event: str, **fields: object) -> NoReturn:
    """End the process with code 1, without clean-up, after one log line that also says what the main thread does."""

    def write() -> None:
        log.critical(event, main_thread=main_thread_calls(), **fields)
        sys.stderr.flush()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(_LOG_AT_MOST)
    os._exit(1)


def main_thread_calls() -> str:
    """Return the innermost calls of the main thread, the latest last: what it runs, or what it is stuck in."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - documented
    calls: list[str] = []
    while frame is not None and len(calls) < _CALLS:
        calls.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(calls))


def run_event_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a program to its end, as `asyncio.run` does, on the loop that there is."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def name_of_event_loop(loop: asyncio.AbstractEventLoop) -> str:
    """Return the package that a loop comes from: `uvloop` or `asyncio`."""
    return type(loop).__module__.partition(".")[0]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@asynccontextmanager
async def background_task(
    coroutine: Coroutine[Any, Any, _T], *, name: str | None = None
) -> AsyncIterator[asyncio.Task[_T]]:
    """Run a task in the background of the block; it has ended, whatever way, when the block has."""
    task = asyncio.create_task(coroutine, name=name)
    try:
        yield task
    finally:
        await cancel_and_wait([task])


async def wait_for_first(*futures: asyncio.Future[Any]) -> None:
    """Wait until one of several futures ends, whatever way."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def cancel_and_wait(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, whatever way."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def freeze() -> None:
    """Keep the garbage collector away from what is there for good: before anything is served, and when caches are full.

    Our modules alone are 113,000 objects that it follows, for 25 to 200 ms in each full pass; 20,000 objects in the
    caches add none, because they are bytes, and neither does another snapshot of them. Frozen, a full pass takes no
    measurable time. What is frozen is still freed when nothing refers to it any more. The thresholds keep passes over
    young objects short (ten thousand of them take some milliseconds), and full ones frequent.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 5)


def unmap_freed_blocks() -> None:
    """Have the C library map each large block for itself, and unmap it when it is freed.

    So it does by default, but only until the first such block is freed: from then on glibc takes blocks of that size
    from a heap that seldom shrinks. Other C libraries have no such knob, and no need of one.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


def switch_threads_often() -> None:
    """Give the event loop its turn within a millisecond while a thread computes; Python's default is five.

    The loop gives the interpreter away at each of its system calls and waits for as long to get it back, so that what
    it does for a few hundred packets would add up to seconds. A switch costs some microseconds.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)


async def collect_periodically() -> None:
    """Collect garbage from time to time until cancelled; of a frozen heap that costs next to nothing."""
    while True:
        await asyncio.sleep(COLLECT_EVERY)
        gc.collect()


class LoopMonitor:
    """Measures one event loop from inside, and watches it from a thread of its own."""

    def __init__(self, *, clock: Clock | None = None, end: Callable[[str], object] = end_process) -> None:
        self._clock = clock or SystemClock()
        self._end = end
        self._beats = 0
        self._due = 0.0
        self._timer: Timer | None = None
        self._worst = 0.0
        self._cpu = 0.0
        self._running_then = ""
        self._silent_checks = 0

    def start(self) -> None:
        """Begin to measure the running loop."""
        self._cpu = time.process_time()
        self._due = self._clock.monotonic() + _BEAT_EVERY
        self._timer = self._clock.call_at(self._due, self._beat)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        now, cpu = self._clock.monotonic(), time.process_time()
        lag = max(0.0, now - self._due)
        self._beats += 1
        series.LOOP_LAG.observe(lag)
        if lag > self._worst:
            self._worst = lag
            series.LOOP_LAG_WORST.set(lag)
        if lag >= STALL:
            cpu_seconds, running = round(cpu - self._cpu, 2), self._running_then or "unknown"
            log.warning("the event loop stood still", seconds=round(lag, 2), cpu_seconds=cpu_seconds, running=running)
        self._cpu = cpu
        self._due = now + _BEAT_EVERY
        self._timer = self._clock.call_at(self._due, self._beat)

    def check(self, last_beats: int) -> int:
        """Check the loop from another thread, every `_CHECK_EVERY` seconds; returns the number of beats so far."""
        beats = self._beats
        if beats != last_beats:
            self._silent_checks = 0
            return beats
        # Checks are counted instead of seconds, so that a pause of the whole process is one check and no stall.
        self._silent_checks += 1
        if self._silent_checks == 1:
            self._running_then = main_thread_calls()
        elif self._silent_checks * _CHECK_EVERY >= STUCK_AFTER:
            self._end(f"the event loop has not turned for {STUCK_AFTER:g} s: the process ends so that it starts again")
        return beats


@asynccontextmanager
async def monitored_loop() -> AsyncIterator[None]:
    """Monitor the running loop and the garbage collector while the block runs."""
    monitor = LoopMonitor()
    ended = threading.Event()

    def watch() -> None:
        beats = -1
        while not ended.wait(_CHECK_EVERY):
            beats = monitor.check(beats)

    pauses = _GcPauses()
    thread = threading.Thread(target=watch, name="loop-monitor", daemon=True)
    gc.callbacks.append(pauses)
    series.count_tasks_of(asyncio.get_running_loop())
    monitor.start()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        monitor.stop()
        series.forget_tasks()
        gc.callbacks.remove(pauses)


class _GcPauses:
    """Times the passes of the garbage collector, which calls it before and after each."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._started = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        now = self._clock.monotonic()
        if phase == "start":
            self._started = now
        else:
            series.GC_PAUSES_OF[info["generation"]].observe(now - self._started)
