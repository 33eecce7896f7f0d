"""How the process itself is doing: the lag of its event loop, the pauses of its garbage collector, its tasks (K-12).

Guarantees:
- The lag is measured ten times a second; a stall of `STALL` or more is logged with what ran meanwhile.
- A loop that has stood still for `STUCK_AFTER` ends the process: its lease is renewed by another thread (L-15), so
  nobody else would ever lead. Time in which the whole process was stopped does not count.
- P-34: tests of the election and the manager run with the loop in debug mode; here it is watched in production.

The monitor belongs to the process, not to a manager: there may be several of those, as in tests.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from trainmaster.controller.kube.clock import Clock, SystemClock, Timer
from trainmaster.controller.kube.fatal import end_process, main_thread_calls
from trainmaster.metrics import process as series

log = structlog.get_logger(__name__)

STALL: Final = 0.5
"""Seconds; renewals and probes are late by now, and so is everybody who waits."""

STUCK_AFTER: Final = 60.0
"""Seconds; nothing that ends takes so long, and a liveness probe, if there is one, gives up before."""

_BEAT_EVERY: Final = 0.1
_CHECK_EVERY: Final = 0.25
"""Seconds between two checks by the watching thread; a stall is seen at least once before it is one."""


class LoopMonitor:
    """Measures one event loop from inside, and watches it from a thread of its own.

    Args:
        clock: The time.
        end: Ends the process, with a message.
    """

    def __init__(self, *, clock: Clock | None = None, end: Callable[[str], object] = end_process) -> None:
        self._clock = clock or SystemClock()
        self._end = end
        self._beats = 0
        self._due = 0.0
        self._timer: Timer | None = None
        self._worst = 0.0
        self._running_then = ""
        self._silent_checks = 0

    def start(self) -> None:
        """Begin to measure the running loop."""
        self._due = self._clock.monotonic() + _BEAT_EVERY
        self._timer = self._clock.call_at(self._due, self._beat)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        now = self._clock.monotonic()
        lag = max(0.0, now - self._due)
        self._beats += 1
        series.LOOP_LAG.observe(lag)
        if lag > self._worst:
            self._worst = lag
            series.LOOP_LAG_WORST.set(lag)
        if lag >= STALL:
            log.warning("the event loop stood still", seconds=round(lag, 2), running=self._running_then or "unknown")
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
            series.GC_PAUSES.observe(info["generation"], now - self._started)
