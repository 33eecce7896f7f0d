"""Plugins that keep failing or take too long: quarantine, and the threads in which they run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from contextvars import ContextVar, copy_context
from functools import partial

import pytest
from support.commands import TIMEOUT, eventually
from support.series import value_of
from support.vandal import FOREVER, TIME, sleep, sleepers

from trainmaster.controller.plugins.guard import CURRENT, PluginGuard, Work
from trainmaster.controller.plugins.quarantine import Quarantine
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.runtime.framework.calls import Calls, PluginFailed, PluginQuarantined, TimeLimitExceeded


@pytest.fixture
def guard() -> Iterator[PluginGuard]:
    with sleepers():
        yield PluginGuard(time_limit=0.1, failures=99, period=60.0, now=TIME)


def threads(size: int = 2, *, skips: bool = False, **options: float) -> closing[PluginThreads]:
    return closing(PluginThreads("test", size=size, skips=lambda _: skips, **options))


async def test_results_errors_and_what_log_lines_say_come_back_and_threads_are_used_again() -> None:
    name: ContextVar[str] = ContextVar("name")
    name.set("demo")
    with threads() as pool:
        first = [await pool.run(threading.get_ident) for _ in range(3)]
        assert len(set(first)) == 1
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        assert await pool.run(threading.get_ident) == first[0]
        assert first[0] != threading.get_ident()
        assert await pool.run(name.get) == "demo", "what is reconciled"


async def test_not_more_than_so_many_run_at_once() -> None:
    running, most = set[int](), list[int]()
    both = threading.Barrier(2)

    def work(number: int) -> None:
        running.add(number)
        most.append(len(running))
        both.wait(FOREVER)
        running.discard(number)

    with threads() as pool:
        await asyncio.gather(*(pool.run(partial(work, number)) for number in range(6)))
    assert max(most) == 2


async def test_one_that_does_not_come_back_is_replaced(guard: PluginGuard) -> None:
    stuck = partial(Calls(guard=guard).run, "acme", "build", sleep, job="uid")
    with threads(size=1) as pool:
        with sleepers():
            with pytest.raises(PluginFailed, match=r"^plugin acme took longer than 0\.1 s in build$"):
                await pool.run(stuck)
            assert await pool.run(lambda: "next") == "next"
            assert value_of("trainmaster_plugin_stuck_calls", {"plugin": "acme"}) == 1
        await eventually(lambda: value_of("trainmaster_plugin_stuck_calls", {"plugin": "acme"}) == 0)
        for _ in range(3):
            assert await pool.run(lambda: "later") == "later"


async def test_a_system_without_more_threads_costs_the_work_and_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with threads(size=1) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(3):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    await pool.run(threading.get_ident)
        assert await asyncio.wait_for(pool.run(lambda: "next"), TIMEOUT) == "next"


async def test_a_call_may_take_less_in_some_threads_than_elsewhere(guard: PluginGuard) -> None:
    with threads(time_limit=0.05) as pool, pytest.raises(PluginFailed, match=r"took longer than 0\.05 s in validate$"):
        await pool.run(partial(Calls(guard=guard).run, "acme", "validate", sleep))


def test_a_call_that_nobody_gave_up_counts_as_too_long_when_it_returns() -> None:
    """As one on the event loop, where nobody can look meanwhile."""
    guard = PluginGuard(time_limit=0.1, failures=1, period=60.0, now=TIME)
    Calls(guard=guard).run("acme", "Watch.jobs", TIME.take_too_long)
    assert [each.why for each in guard.quarantined()] == ["it took longer than 0.1 s in Watch.jobs"]


async def test_work_that_is_given_up_ends_by_itself_and_frees_its_place() -> None:
    release = threading.Event()
    with threads(size=1) as pool:
        waiting = asyncio.create_task(pool.run(partial(release.wait, FOREVER)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        assert await pool.run(lambda: "next") == "next"


async def test_where_jobs_go_on_without_the_plugin_the_work_is_done_again_without_it(guard: PluginGuard) -> None:
    tried = list[str]()

    def work() -> str:
        try:
            Calls(guard=guard).run("acme", "build", sleep, job="uid")
        except PluginFailed as error:
            tried.append(str(error))
        return "done without it"

    with threads(size=1, skips=True) as pool:
        assert await pool.run(work) == "done without it"
        assert tried == ["plugin acme took longer than 0.1 s in build"]


def failing(
    quarantine: Quarantine, *jobs: str, phase: str = "build", exceeded: bool = False, now: float = 0.0
) -> list[bool]:
    """Let calls fail; tells of each whether it was the one that counted."""
    return [
        quarantine.failed("acme", phase, job, why="KeyError: 'region'", exceeded=exceeded, now=now) is not None
        for job in jobs
    ]


def quarantined() -> Quarantine:
    quarantine = Quarantine(failures=3, period=60.0)
    assert failing(quarantine, "a", "b", "c") == [False, False, True]
    return quarantine


def test_so_many_failures_of_different_trainjobs_in_a_row_quarantine_a_plugin() -> None:
    quarantine = quarantined()
    (found,) = quarantine.list()
    assert (found.plugin, found.phase, found.failures, found.why) == ("acme", "build", 3, "KeyError: 'region'")
    assert quarantine.enter("acme", "build", now=59.9) == found
    assert quarantine.enter("acme", "validate", now=59.9) == found
    assert quarantine.enter("other", "build", now=59.9) is None


def test_what_counts_as_failures_in_a_row() -> None:
    """Whoever always fails in `build` comes through `enforce_ml_policy` before."""
    quarantine = Quarantine(failures=3, period=60.0)
    assert failing(quarantine, *["a"] * 50, *["b"] * 50) == [False] * 100, "one TrainJob counts once"
    quarantine.succeeded("acme", "build")
    assert failing(quarantine, "c", "d") == [False, False], "success in the same phase ends the row"
    quarantine.succeeded("acme", "enforce_ml_policy")
    assert failing(quarantine, "e") == [True], "success in another phase does not"
    quarantine = Quarantine(failures=3, period=60.0)
    assert failing(quarantine, "a", "a", "a", exceeded=True) == [False, False, True], "each limit counts"


def test_after_the_period_one_call_is_let_through_and_success_ends_the_quarantine() -> None:
    quarantine = quarantined()
    assert quarantine.enter("acme", "enforce_ml_policy", now=60.0) is None
    assert not quarantine.succeeded("acme", "enforce_ml_policy")
    assert quarantine.enter("acme", "build", now=60.0) is None
    assert quarantine.enter("acme", "build", now=60.0) is not None  # another job's
    assert quarantine.succeeded("acme", "build")
    assert quarantine.list() == []
    assert quarantine.enter("acme", "build", now=60.0) is None


def test_a_failure_of_that_call_begins_the_quarantine_anew() -> None:
    quarantine = quarantined()
    assert quarantine.enter("acme", "build", now=60.0) is None
    assert failing(quarantine, "z", now=61.0) == [False]  # it is no news
    assert quarantine.enter("acme", "build", now=120.9) is not None
    assert quarantine.enter("acme", "build", now=121.0) is None


def test_a_call_that_began_before_and_succeeds_does_not_end_it() -> None:
    quarantine = quarantined()
    assert not quarantine.succeeded("acme", "build")
    assert quarantine.enter("acme", "build", now=1.0) is not None


def test_while_a_call_does_not_come_back_none_is_let_through() -> None:
    quarantine = quarantined()
    quarantine.gave_up("acme", "build")
    assert quarantine.enter("acme", "build", now=600.0) is not None
    quarantine.came_back("acme", "build")
    assert quarantine.enter("acme", "build", now=600.0) is None


def test_calls_that_do_not_come_back_count_although_others_succeed_in_between() -> None:
    """It does not return for one TrainJob: each try would take another thread for ever."""
    quarantine = Quarantine(failures=3, period=60.0)
    for news in (False, False, True):
        quarantine.gave_up("acme", "build")
        assert failing(quarantine, "odd", exceeded=True) == [news]
        quarantine.succeeded("acme", "build")
    assert quarantine.enter("acme", "build", now=600.0) is not None
    for _ in range(3):
        quarantine.came_back("acme", "build")
    assert quarantine.enter("acme", "build", now=600.0) is None


def test_of_a_plugin_that_is_quarantined_for_something_else_no_more_calls_hang_than_of_others() -> None:
    """Events still reach it, and each would take a thread for ever."""
    guard = PluginGuard(time_limit=5.0, failures=1, period=60.0, now=lambda: now[0])
    now = [0.0]
    with pytest.raises(PluginFailed):
        Calls(guard=guard).run("acme", "build", lambda: 1 // 0)
    assert [each.phase for each in guard.quarantined()] == ["build"]
    work = Work()

    def hang() -> None:
        now[0] = 5.1
        assert guard.give_up(work)
        with pytest.raises(PluginQuarantined, match=r"in Watch\.jobs \(it does not return\)"):
            copy_context().run(in_another_thread)

    def in_another_thread() -> None:
        CURRENT.set(None)
        guard("acme", "Watch.jobs", "", list)

    context = copy_context()
    context.run(CURRENT.set, work)
    with pytest.raises(TimeLimitExceeded):
        context.run(guard, "acme", "Watch.jobs", "", hang)
    assert Calls(guard=guard).run("acme", "Watch.jobs", lambda: "it has come back") == "it has come back"


def test_whom_a_plugin_serves_is_asked_however_many_other_calls_do_not_come_back() -> None:
    quarantine = quarantined()
    for _ in range(9):
        quarantine.gave_up("acme", "build")
    for _ in range(3):
        assert quarantine.enter("acme", "applies_to", now=1.0) is None
        quarantine.gave_up("acme", "applies_to")
    assert quarantine.enter("acme", "applies_to", now=1.0) is not None


@pytest.mark.parametrize("failures", [1, 2])
def test_the_number_of_failures_is_a_choice(failures: int) -> None:
    quarantine = Quarantine(failures=failures, period=60.0)
    assert failing(quarantine, "a", "b")[:failures] == [False] * (failures - 1) + [True]
