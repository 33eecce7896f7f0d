"""The guard: stands around each call of a plugin that is not ours (`runtime.framework.calls.CallGuard`).

Guarantees:
- A call of a plugin that is quarantined fails without being made.
- A call that takes longer than the time limit counts as failed. Whoever waits for it (`threads`) gives it up, and the
  thread is left to the plugin: nothing ends a call from outside.
- What our own plugins do is neither watched nor counted: they are tested with everything else, and a plugin that all
  TrainJobs need must not be lost to them because some of them are odd.
- That a plugin is quarantined, and that it works again, is a line in the log, a metric and a detail of readiness.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from trainmaster.controller.configuration import Plugins, seconds
from trainmaster.controller.plugins.loading import LoadedPlugins
from trainmaster.controller.plugins.quarantine import Quarantine, Quarantined
from trainmaster.metrics.plugins import QUARANTINED, STUCK, count_refused_call, publish_plugin
from trainmaster.runtime.framework.calls import CallEnded, CallRefused, text_of
from trainmaster.runtime.framework.framework import INDEXING, MAPPING

log = structlog.get_logger(__name__)

EVENTS: Final = (MAPPING, INDEXING)
"""The phases in which events are taken in. What they are not called with is lost, so they are refused only if they are
what keeps failing.
"""


class PluginQuarantined(CallRefused):
    """A plugin is not called for a while."""


class TimeLimitExceeded(CallEnded):
    """A call took too long."""


@dataclass(slots=True, eq=False)
class Call:
    """A call that is under way."""

    guard: PluginGuard
    plugin: str
    phase: str
    job: str
    started: float
    limit: float
    is_over: bool = False

    @property
    def error(self) -> TimeLimitExceeded:
        """What it fails with if it takes too long."""
        return TimeLimitExceeded(f"took longer than {self.limit:g} s in {self.phase}")

    def give_up(self) -> bool:
        """Wait for it no longer if it takes too long; returns whether that is so."""
        return self.guard.give_up(self)


@dataclass(slots=True, eq=False)
class Work:
    """What a thread is at: some calls, one after the other."""

    time_limit: float = float("inf")
    """Seconds that a call may take, if that is less than elsewhere."""

    refused: Mapping[str, CallEnded] = field(default_factory=dict)
    """Plugins that are not called, with the reason: the work is being done again because of them."""

    call: Call | None = None
    given_up: CallEnded | None = None
    """Why nobody waits for it any more."""


class CurrentWork(threading.local):
    """What the thread that asks is at."""

    def __init__(self) -> None:
        self.work = Work()


CURRENT: Final = CurrentWork()


class PluginGuard:
    """Guards the calls of some plugins.

    Args:
        plugins: Those that are guarded.
        time_limit: Seconds that one call may take.
        failures: After how many failures in a row a plugin is quarantined.
        period: Seconds until it is tried again.
        now: The time.
    """

    def __init__(
        self,
        plugins: Collection[str],
        *,
        time_limit: float,
        failures: int,
        period: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plugins = frozenset(plugins)
        self._now = now
        self._lock = threading.Lock()
        self._quarantine = Quarantine(failures=failures, period=period)
        self._time_limit = time_limit
        for plugin in self._plugins:
            publish_plugin(plugin)

    @property
    def period(self) -> float:
        """Seconds until a quarantined plugin is tried again."""
        return self._quarantine.period

    def enter(self, plugin: str, phase: str, job: str) -> None:
        """Take note of a call that begins.

        Raises:
            PluginQuarantined: It must not be made.
            CallEnded: The same work exceeded the limit in this plugin before, or nobody waits for it any more.
        """
        if plugin not in self._plugins:
            return
        work = CURRENT.work
        if (reason := work.given_up or work.refused.get(plugin)) is not None:
            raise reason
        with self._lock:
            quarantined = self._quarantine.enter(plugin, phase, now=self._now())
        if quarantined is not None and (phase not in EVENTS or phase == quarantined.phase):
            count_refused_call(plugin, phase)
            raise PluginQuarantined(self._text(quarantined))
        work.call = Call(self, plugin, phase, job, self._now(), min(self._time_limit, work.time_limit))

    def leave(self, plugin: str, phase: str, job: str, error: BaseException | None) -> None:  # noqa: ARG002 - the protocol's
        """Take note that the call of this thread has ended, and draw the conclusions.

        Raises:
            CallEnded: It was given up, and its work with it.
        """
        work = CURRENT.work
        if plugin not in self._plugins or (call := work.call) is None:
            return
        work.call = None
        with self._lock:
            given_up, call.is_over = call.is_over, True
            if given_up:
                self._quarantine.came_back(plugin, phase)
        if given_up:
            STUCK.labels(plugin).dec()
            raise call.error
        if self._now() - call.started > call.limit:
            self._failed(call, call.error, exceeded=True)
        elif error is not None:
            self._failed(call, error, exceeded=False)
        else:
            with self._lock:
                ended = self._quarantine.succeeded(plugin, phase)
            if ended:
                QUARANTINED.labels(plugin).set(0)
                log.info("a plugin works again and is called as before", plugin=plugin, phase=phase)

    def give_up(self, call: Call) -> bool:
        """Wait no longer for a call that takes too long; returns whether that is so."""
        with self._lock:
            if call.is_over or self._now() - call.started <= call.limit:
                return False
            call.is_over = True
            self._quarantine.gave_up(call.plugin, call.phase)
        STUCK.labels(call.plugin).inc()
        log.error(
            "a call of a plugin takes too long; its thread is left to it, and another one takes its place",
            plugin=call.plugin,
            phase=call.phase,
            error=str(call.error),
            hint="plugins decide, and neither wait nor do I/O; ask its author",
        )
        self._failed(call, call.error, exceeded=True)
        return True

    def quarantined(self) -> Sequence[Quarantined]:
        """Return the plugins that are not called, by name."""
        with self._lock:
            return self._quarantine.list()

    def detail(self) -> str | None:
        """Say which plugins are not called, to everybody who reads probes; errors may quote anything."""
        return "; ".join(_summary(each) for each in self.quarantined()) or None

    def _failed(self, call: Call, error: BaseException, *, exceeded: bool) -> None:
        text = text_of(error)
        # Owners of other TrainJobs get to read it: not what an error quotes of this one.
        why = f"it {text}" if exceeded else type(error).__name__
        with self._lock:
            quarantined = self._quarantine.failed(
                call.plugin, call.phase, call.job, why=why, exceeded=exceeded, now=self._now()
            )
        if quarantined is not None:
            QUARANTINED.labels(call.plugin).set(1)
            log.error(
                "a plugin kept failing and is quarantined: it is not called for a while",
                plugin=call.plugin,
                phase=call.phase,
                failures=quarantined.failures,
                last=f"{type(error).__name__}: {text}",
                tried_again_after=f"{self.period:g} s",
                hint="see its errors above; until it is mended, leave it out by plugins.disabled of the configuration, "
                "or let TrainJobs go on without it by plugins.failurePolicy",
            )

    def _text(self, quarantined: Quarantined) -> str:
        return f"{_counted(quarantined)} ({quarantined.why}); it is tried again every {self.period:g} s"


def _counted(quarantined: Quarantined) -> str:
    times = "a failure" if quarantined.failures == 1 else f"{quarantined.failures} failures in a row"
    return f"is quarantined after {times} in {quarantined.phase}"


def _summary(quarantined: Quarantined) -> str:
    return f"{quarantined.plugin} {_counted(quarantined)}"


def guard_of(
    loaded: LoadedPlugins, settings: Plugins, *, now: Callable[[], float] = time.monotonic
) -> PluginGuard | None:
    """Make the guard of the plugins that are not ours; None if there are none."""
    if not loaded.others:
        return None
    return PluginGuard(
        loaded.others,
        time_limit=seconds(settings.time_limit),
        failures=settings.quarantine.failures,
        period=seconds(settings.quarantine.period),
        now=now,
    )


def plugins_detail(loaded: LoadedPlugins, guard: PluginGuard | None) -> str | None:
    """Say what does not run of what should, to everybody who reads probes."""
    details = (loaded.detail(), None if guard is None else guard.detail())
    return "; ".join(each for each in details if each) or None
