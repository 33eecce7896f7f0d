"""Calls that exceed a limit end, and nothing is raised in anybody else's."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from support.faulty_plugins import FOREVER, TIME, hoard, spin

from trainmaster.controller.plugins.watchdog import SURROUNDINGS, Call, MemoryLimitExceeded, TimeLimitExceeded, Watchdog
from trainmaster.runtime.framework.calls import Calls, PluginFailed


def watchdog(*, time_limit: float = 0.2, memory_limit: int = 1 << 40) -> closing[Watchdog]:
    return closing(Watchdog(time_limit=time_limit, memory_limit=memory_limit, now=TIME))


def left(dog: Watchdog) -> Call:
    """The call that has been left; tried again as `Calls` does."""
    try:
        call = dog.leave()
    except BaseException:
        call = dog.leave()
    assert call is not None
    return call


def test_a_call_that_takes_too_long_is_ended_by_an_exception_that_no_except_exception_catches() -> None:
    with watchdog() as dog:
        dog.enter("acme", "build", "uid")
        with pytest.raises(TimeLimitExceeded, match=r"^took longer than 0\.2 s in build$"), suppress(Exception):
            spin()
        call = left(dog)
        assert (call.plugin, call.phase, call.job) == ("acme", "build", "uid")
        assert isinstance(call.error, TimeLimitExceeded)


def test_a_call_during_which_the_process_grows_too_much_is_ended() -> None:
    with watchdog(memory_limit=64 << 20) as dog:
        dog.enter("acme", "build", "uid")
        with pytest.raises(MemoryLimitExceeded, match=r"^took more than 64 MiB of memory in build$"):
            hoard()
        left(dog)


def test_what_was_not_ended_in_time_is_told_when_it_ends() -> None:
    """As a regular expression that holds the interpreter would be, while which nobody looks."""
    with watchdog() as dog:
        dog._look = lambda: None  # type: ignore[method-assign]  # it gets no turn
        dog.enter("acme", "build", "uid")
        TIME.take_too_long()
        assert isinstance(left(dog).error, TimeLimitExceeded)


def test_what_waits_in_c_is_told_of_once_and_ends_when_it_comes_back() -> None:
    told: list[Call] = []
    stuck, release, result = threading.Event(), threading.Event(), list[BaseException]()

    def on_stuck(call: Call) -> None:
        told.append(call)
        stuck.set()

    def work() -> None:
        SURROUNDINGS.on_stuck = on_stuck
        dog.enter("acme", "build", "uid")
        TIME.take_too_long(readings=2)
        try:
            release.wait(FOREVER)
            spin()
        except TimeLimitExceeded as error:
            result.append(error)
        left(dog)

    with watchdog() as dog:
        thread = threading.Thread(target=work)
        thread.start()
        assert stuck.wait(FOREVER)
        release.set()
        thread.join(FOREVER)
    assert [(call.plugin, call.stuck) for call in told] == [("acme", True)]
    assert [str(error) for error in result] == ["took longer than 0.2 s in build"]


def test_a_thread_may_have_a_shorter_limit() -> None:
    done = list[BaseException]()

    def work() -> None:
        SURROUNDINGS.time_limit = 0.05
        dog.enter("acme", "validate", "uid")
        try:
            spin()
        except TimeLimitExceeded as error:
            done.append(error)
        left(dog)

    with watchdog(time_limit=FOREVER) as dog:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(FOREVER)
    assert [str(error) for error in done] == ["took longer than 0.05 s in validate"]


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_switches")
def test_nothing_is_raised_after_a_call_however_close_its_end_and_its_limit_are() -> None:
    outside: list[BaseException] = []
    results: list[str] = []
    dog = Watchdog(time_limit=0.0, grace=FOREVER)
    dog._resident.read = lambda: 0  # type: ignore[method-assign]  # it would let others run, at the same point always
    stop = threading.Event()

    class Guard:
        def enter(self, plugin: str, phase: str, job: str) -> None:
            dog.enter(plugin, phase, job)

        def leave(self, plugin: str, phase: str, job: str, error: BaseException | None) -> None:
            dog.leave()

    def compute(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    def hurry() -> None:
        while not stop.is_set():
            dog._look()

    def work() -> None:
        calls, number = Calls(guard=Guard()), 0
        while len(results) < 30 and not stop.is_set():
            number += 1
            try:
                try:
                    calls.run("acme", "build", functools.partial(compute, number % 20 * 1e-5), job="uid")
                except PluginFailed as error:
                    results.append(str(error))
                sum(range(20))
            except BaseException as error:
                outside.append(error)
                return

    threads = [threading.Thread(target=work), threading.Thread(target=hurry)]
    for thread in threads:
        thread.start()
    threads[0].join(FOREVER)
    stop.set()
    threads[1].join(FOREVER)
    dog.close()
    assert len(results) >= 30
    assert outside == []
    assert set(results) == {"plugin acme took longer than 0 s in build"}
    assert dog._calls == {}


def test_the_interpreter_looks_for_exceptions_no_more_when_a_call_was_ended() -> None:
    """It would be slower from then on, and in CPython 3.11 code that is traced would stand still."""
    with watchdog() as dog:
        for _ in range(3):
            dog.enter("acme", "build", "uid")
            with suppress(TimeLimitExceeded):
                spin()
            left(dog)

    def traced() -> int:
        return len("done")

    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert traced() == 4
    finally:
        sys.settrace(before)
