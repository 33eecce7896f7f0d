"""The watchdog: a thread that ends calls of plugins which exceed a limit.

Guarantees:
- A call that takes longer than the time limit, or during which the process grows by more than the memory limit, is
  ended by an exception in its own thread, at its next instruction of Python.
- Such an exception is raised within the call that it is meant for, or in `leave` of that call, and never later. Each
  call gets one at most.
- What cannot be ended so, because it waits in C (`time.sleep`, a socket, a lock), is told of by `on_stuck`, once.

Neither `enter` nor `leave` takes a lock: the exception may come at any instruction, and would leave one taken.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from trainmaster.runtime.framework.calls import CallEnded

INTERVAL: Final = 0.05
"""Seconds between two looks, while there is a call."""

_IDLE_INTERVAL: Final = 0.5

GRACE: Final = 1.0
"""Seconds that an ended call has to end."""

MEMORY_LIMIT: Final = 256 * 1024 * 1024
"""Bytes by which the process may grow during one call; a plan takes some hundred kilobytes."""

_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_set_async_exc: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_async_exc.restype = ctypes.c_int


class TimeLimitExceeded(CallEnded):
    """A call took too long."""


class MemoryLimitExceeded(CallEnded):
    """The process grew by too much during a call."""


class Surroundings(threading.local):
    """What holds for the calls of one thread, beyond what holds for all."""

    time_limit: float | None = None
    """Seconds that a call may take, if that is less than elsewhere."""

    on_stuck: Callable[[Call], object] | None = None
    """Called, from the thread of the watchdog, with a call that does not end."""

    refused: Mapping[str, CallEnded] = MappingProxyType({})
    """Plugins that are not called, with the reason: the work is being done again because of them."""


SURROUNDINGS: Final = Surroundings()


@dataclass(slots=True, eq=False)
class Call:
    """A call that is under way."""

    plugin: str
    phase: str
    job: str
    limit: float
    started: float
    memory: int
    on_stuck: Callable[[Call], object] | None
    error: CallEnded | None = None
    """Why it was ended."""

    ended_at: float = 0.0
    sent: bool = False
    """Whether nothing is raised in its thread any more by the watchdog."""

    left: bool = False
    stuck: bool = False
    """Whether it did not end, and that was told of."""


class Watchdog:
    """Watches calls.

    Args:
        time_limit: Seconds that a call may take.
        memory_limit: Bytes by which the process may grow meanwhile.
        on_stuck: Called with a call that does not end, before the `on_stuck` of its thread.
        grace: Seconds that it has to end.
        now: The time.
    """

    def __init__(
        self,
        *,
        time_limit: float,
        memory_limit: int = MEMORY_LIMIT,
        on_stuck: Callable[[Call], object] = lambda _: None,
        grace: float = GRACE,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.time_limit = time_limit
        self._now = now
        self._memory_limit = memory_limit
        self._on_stuck = on_stuck
        self._grace = grace
        self._calls: dict[int, Call] = {}
        self._wake = threading.Event()
        self._closed = False
        self._resident = _ResidentMemory()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def enter(self, plugin: str, phase: str, job: str) -> None:
        """Watch a call that begins in this thread."""
        if self._thread is None:
            self._start()
        around = SURROUNDINGS
        limit = self.time_limit if around.time_limit is None else min(self.time_limit, around.time_limit)
        call = Call(plugin, phase, job, limit, self._now(), self._resident.read(), around.on_stuck)
        ident = threading.get_ident()
        if not self._wake.is_set():
            self._wake.set()
        # Nothing is called after this: what is raised from now on is raised where `leave` is sure to follow.
        self._calls[ident] = call

    def leave(self) -> Call | None:
        """Watch the call of this thread no longer; returns it, with `error` if it exceeded a limit.

        From its return on nothing is raised in this thread. If it raises, the exception was the call's, and it has to
        be called again, which returns the call then, or None if it had been returned.
        """
        ident = threading.get_ident()
        call = self._calls.get(ident)
        if call is None:
            return None
        call.left = True
        if call.error is not None:
            while not call.sent:
                time.sleep(0)
            _take_exception(ident)
        del self._calls[ident]
        if call.error is None and self._now() - call.started > call.limit:
            call.error = _too_long(call)  # in C, and nobody could look meanwhile
        return call

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()
        self._resident.close()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="plugin-watchdog", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            if not self._calls and not self._closed:
                self._wake.wait(_IDLE_INTERVAL)  # a call that was about to begin is found by then
            time.sleep(INTERVAL)
            self._look()

    def _look(self) -> None:
        now, memory = self._now(), self._resident.read()
        grown = False
        for ident, call in self._calls.copy().items():
            if call.error is not None:
                if not call.stuck and now - call.ended_at > self._grace:
                    call.stuck = True
                    self._on_stuck(call)
                    if call.on_stuck is not None:
                        call.on_stuck(call)
            elif now - call.started > call.limit:
                self._end(ident, call, _too_long(call), now)
            elif memory - call.memory > self._memory_limit and not grown:
                # The oldest: it was there all the time. If it was another one, the next look finds that.
                grown = True
                self._end(ident, call, _too_large(call, self._memory_limit), now)

    def _end(self, ident: int, call: Call, error: CallEnded, now: float) -> None:
        """Raise an exception in the thread of a call, unless that has left it.

        Either this sees `left`, or `leave` sees `error`, and then waits for `sent`.
        """
        call.error, call.ended_at = error, now
        if not call.left:
            _set_async_exc(ident, _class_of(error))
        call.sent = True


class _Taken(BaseException):
    """Stands in the place of an exception that has not been raised yet."""


def _take_exception(ident: int) -> None:
    """Have nothing raised in this thread any more.

    To take back what is pending is not enough: the interpreter would look for it at every turn from then on, in all
    threads, and code that is traced would stand still. So something is raised, and caught here.
    """
    try:
        _set_async_exc(ident, _Taken)
        while True:
            pass
    except _Taken:
        pass


def _too_long(call: Call) -> CallEnded:
    return TimeLimitExceeded(f"took longer than {call.limit:g} s in {call.phase}")


def _too_large(call: Call, limit: int) -> CallEnded:
    return MemoryLimitExceeded(f"took more than {limit / 2**20:g} MiB of memory in {call.phase}")


def _class_of(error: CallEnded) -> type[CallEnded]:
    """Return a class whose instances say what an error says: the interpreter takes a class, and makes one."""
    text = str(error)
    return type(type(error).__name__, (type(error),), {"__str__": lambda _: text})


class _ResidentMemory:
    """How many bytes of memory this process has; 0 where the system does not tell."""

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None

    def read(self) -> int:
        """Return it."""
        if self._file is None:
            return 0
        return int(os.pread(self._file, 128, 0).split()[1]) * _PAGE

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
