"""Plugins that keep failing or take too long: quarantine, and the threads in which they run."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from contextvars import ContextVar, copy_context
from functools import partial

import pytest
from support.commands import TIMEOUT, eventually
from support.series import value_of
from support.vandal import FOREVER, TIME, sleep, sleepers

from trainmaster.controller.plugins.guard import CURRENT, PluginGuard, Work
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
    assert [each.why for each in guard.quarantined.values()] == ["it took longer than 0.1 s in Watch.jobs"]


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


class Guarded:
    """A guard, and the time; the plugin is `acme`."""

    def __init__(self, *, failures: int = 3) -> None:
        self.now = 0.0
        self.guard = PluginGuard(time_limit=5.0, failures=failures, period=60.0, now=lambda: self.now)

    def fail(self, *jobs: str, phase: str = "build", exceeded: bool = False) -> list[bool]:
        """Let calls fail; tells after each whether the plugin is quarantined."""

        def make() -> None:
            if not exceeded:
                raise KeyError("region")
            self.now += 5.1

        told = []
        for job in jobs:
            with suppress(KeyError, PluginQuarantined):
                self.guard("acme", phase, job, make)
            told.append(bool(self.guard.quarantined))
        return told

    def succeed(self, phase: str = "build", *, plugin: str = "acme") -> bool:
        """Let a call succeed; tells whether it was made."""
        try:
            self.guard(plugin, phase, "job", lambda: None)
        except PluginQuarantined:
            return False
        return True

    def hang(self, phase: str = "build") -> Callable[[], None]:
        """Let a call hang until it is given up; returns what lets it come back."""
        work, started, release = Work(), threading.Event(), threading.Event()

        def make() -> None:
            started.set()
            release.wait(FOREVER)

        def run() -> None:
            CURRENT.set(work)
            with suppress(TimeLimitExceeded):
                self.guard("acme", phase, "odd", make)

        thread = threading.Thread(target=run)
        thread.start()
        started.wait(FOREVER)
        self.now += 5.1
        assert self.guard.give_up(work)

        def come_back() -> None:
            release.set()
            thread.join()

        return come_back


def quarantined() -> Guarded:
    guarded = Guarded()
    assert guarded.fail("a", "b", "c") == [False, False, True]
    return guarded


def test_so_many_failures_of_different_trainjobs_in_a_row_quarantine_a_plugin() -> None:
    guarded = quarantined()
    (found,) = guarded.guard.quarantined.values()
    assert (found.plugin, found.phase, found.failures, found.why) == ("acme", "build", 3, "KeyError")
    guarded.now = 59.9
    assert not guarded.succeed("build")
    assert not guarded.succeed("validate")
    assert guarded.succeed(plugin="other")


def test_what_counts_as_failures_in_a_row() -> None:
    """Whoever always fails in `build` comes through `enforce_ml_policy` before."""
    guarded = Guarded()
    assert guarded.fail(*["a"] * 50, *["b"] * 50) == [False] * 100, "one TrainJob counts once"
    guarded.succeed("build")
    assert guarded.fail("c", "d") == [False, False], "success in the same phase ends the row"
    guarded.succeed("enforce_ml_policy")
    assert guarded.fail("e") == [True], "success in another phase does not"
    assert Guarded().fail("a", "a", "a", exceeded=True) == [False, False, True], "each limit counts"


def test_after_the_period_one_call_is_let_through_and_success_ends_the_quarantine() -> None:
    guarded = quarantined()
    guarded.now = 60.0
    assert guarded.succeed("enforce_ml_policy")
    assert guarded.guard.quarantined

    def meanwhile() -> None:
        assert not guarded.succeed("build"), "another job's"

    guarded.guard("acme", "build", "job", meanwhile)
    assert not guarded.guard.quarantined
    assert guarded.succeed("build")


def test_a_failure_of_that_call_begins_the_quarantine_anew() -> None:
    guarded = quarantined()
    guarded.now = 61.0
    assert guarded.fail("z") == [True]
    guarded.now = 120.9
    assert not guarded.succeed()
    guarded.now = 121.0
    assert guarded.succeed()


def test_a_call_that_began_before_and_succeeds_does_not_end_it() -> None:
    guarded = Guarded()
    guarded.guard("acme", "build", "job", lambda: guarded.fail("a", "b", "c"))
    assert not guarded.succeed()


def test_while_a_call_does_not_come_back_none_is_let_through() -> None:
    guarded = Guarded(failures=1)
    come_back = guarded.hang()
    guarded.now = 600.0
    assert not guarded.succeed()
    come_back()
    assert guarded.succeed()


def test_calls_that_do_not_come_back_count_although_others_succeed_in_between() -> None:
    """It does not return for one TrainJob: each try would take another thread for ever."""
    guarded, stuck = Guarded(), list[Callable[[], None]]()
    for made in (True, True, False):
        stuck.append(guarded.hang())
        assert guarded.succeed() is made
    guarded.now = 600.0
    assert not guarded.succeed()
    for come_back in stuck:
        come_back()
    assert guarded.succeed()


def test_of_a_plugin_that_is_quarantined_for_something_else_no_more_calls_hang_than_of_others() -> None:
    """Events still reach it, and each would take a thread for ever."""
    guard = PluginGuard(time_limit=5.0, failures=1, period=60.0, now=lambda: now[0])
    now = [0.0]
    with pytest.raises(PluginFailed):
        Calls(guard=guard).run("acme", "build", lambda: 1 // 0)
    assert [each.phase for each in guard.quarantined.values()] == ["build"]
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


async def test_a_call_within_a_call_that_does_not_come_back_is_the_only_one_that_counts(guard: PluginGuard) -> None:
    """A plugin may look at objects of which the index function of another plugin is called."""
    calls = Calls(guard=guard)

    def stuck(plugin: str) -> float:
        return value_of("trainmaster_plugin_stuck_calls", {"plugin": plugin}) or 0.0

    def build() -> None:
        calls.run("inner", "Watch.index", list)
        calls.run("inner", "Watch.index", sleep)

    before = stuck("inner"), stuck("outer")
    with threads() as pool:
        with sleepers():
            with pytest.raises(PluginFailed, match=r"^plugin inner took longer"):
                await pool.run(partial(calls.run, "outer", "build", build))
            assert (stuck("inner"), stuck("outer")) == (before[0] + 1, before[1])
        await eventually(lambda: (stuck("inner"), stuck("outer")) == before)


async def test_a_call_is_given_up_also_after_another_call_within_it(guard: PluginGuard) -> None:
    calls = Calls(guard=guard)

    def build() -> None:
        calls.run("inner", "Watch.index", list)
        sleep()

    with threads() as pool, sleepers(), pytest.raises(PluginFailed, match=r"^plugin outer took longer"):
        await pool.run(partial(calls.run, "outer", "build", build))


def test_a_plugin_is_tried_again_although_a_call_within_its_try_did_not_come_back() -> None:
    now = [0.0]
    guard = PluginGuard(time_limit=5.0, failures=1, period=60.0, now=lambda: now[0])
    calls, work = Calls(guard=guard), Work()
    with pytest.raises(PluginFailed):
        calls.run("outer", "build", lambda: 1 // 0)

    def hang() -> None:
        now[0] += 5.1
        assert guard.give_up(work)

    now[0] = 60.0
    context = copy_context()
    context.run(CURRENT.set, work)
    with pytest.raises(PluginFailed):
        context.run(calls.run, "outer", "build", partial(guard, "inner", "Watch.index", "", hang))
    assert calls.run("outer", "build", lambda: "built") == "built"


def test_whom_a_plugin_serves_is_asked_however_many_other_calls_do_not_come_back() -> None:
    guarded = Guarded()
    stuck = [guarded.hang() for _ in range(3)]
    for _ in range(3):
        assert guarded.succeed("applies_to")
        stuck.append(guarded.hang("applies_to"))
    assert not guarded.succeed("applies_to")
    for come_back in stuck:
        come_back()


@pytest.mark.parametrize("failures", [1, 2])
def test_the_number_of_failures_is_a_choice(failures: int) -> None:
    assert Guarded(failures=failures).fail("a", "b")[:failures] == [False] * (failures - 1) + [True]
