"""The guard: stands around each call of a plugin that is not ours (`runtime.framework.calls.CallGuard`).

Guarantees:
- A call that exceeds a limit fails, and so does each call of a plugin that is quarantined, without being made.
- What our own plugins do is neither watched nor counted: they are tested with everything else, and a plugin that all
  TrainJobs need must not be lost to them because some of them are odd.
- That a plugin is quarantined, and that it works again, is a line in the log, a metric and a detail of readiness.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

import structlog

from trainmaster.controller.configuration import Plugins, seconds
from trainmaster.controller.plugins.loading import LoadedPlugins
from trainmaster.controller.plugins.quarantine import Quarantine, Quarantined
from trainmaster.controller.plugins.watchdog import GRACE, MEMORY_LIMIT, SURROUNDINGS, Call, Watchdog
from trainmaster.metrics.plugins import QUARANTINED, STUCK, count_refused_call, publish_plugin
from trainmaster.runtime.framework.calls import CallRefused, text_of
from trainmaster.runtime.framework.framework import INDEXING, MAPPING

log = structlog.get_logger(__name__)

EVENTS: Final = (MAPPING, INDEXING)
"""The phases in which events are taken in. What they are not called with is lost, so they are refused only if they are
what keeps failing.
"""


class PluginQuarantined(CallRefused):
    """A plugin is not called for a while."""


class PluginGuard:
    """Guards the calls of some plugins.

    Args:
        plugins: Those that are guarded.
        time_limit: Seconds that one call may take.
        failures: After how many failures in a row a plugin is quarantined.
        period: Seconds until it is tried again.
        memory_limit: Bytes by which the process may grow during one call.
        grace: Seconds that a call has to end when it has been told to.
        now: The time.
    """

    def __init__(
        self,
        plugins: Collection[str],
        *,
        time_limit: float,
        failures: int,
        period: float,
        memory_limit: int = MEMORY_LIMIT,
        grace: float = GRACE,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plugins = frozenset(plugins)
        self._now = now
        self._lock = threading.Lock()
        self._quarantine = Quarantine(failures=failures, period=period)
        self._watchdog = Watchdog(
            time_limit=time_limit, memory_limit=memory_limit, on_stuck=self._gave_up, grace=grace, now=now
        )
        for plugin in self._plugins:
            publish_plugin(plugin)

    @property
    def period(self) -> float:
        """Seconds until a quarantined plugin is tried again."""
        return self._quarantine.period

    def enter(self, plugin: str, phase: str, job: str) -> None:
        """Watch a call that begins.

        Raises:
            PluginQuarantined: It must not be made.
            CallEnded: It was made for the same work before, and exceeded a limit.
        """
        if plugin not in self._plugins:
            return
        refused = SURROUNDINGS.refused.get(plugin)
        if refused is not None:
            raise refused
        with self._lock:
            quarantined = self._quarantine.enter(plugin, phase, now=self._now())
        if quarantined is not None and (phase not in EVENTS or phase == quarantined.phase):
            count_refused_call(plugin, phase)
            raise PluginQuarantined(self._text(quarantined))
        self._watchdog.enter(plugin, phase, job)

    def leave(self, plugin: str, phase: str, job: str, error: BaseException | None) -> None:  # noqa: ARG002 - the protocol's
        """Watch the call of this thread no longer, and draw the conclusions."""
        if plugin not in self._plugins:
            return
        call = self._watchdog.leave()
        if call is None:
            return
        if call.stuck:
            STUCK.labels(plugin).dec()
            with self._lock:
                self._quarantine.came_back(plugin)
        elif call.error is not None:
            self._failed(call, call.error, exceeded=True)
        elif error is not None:
            self._failed(call, error, exceeded=False)
        else:
            with self._lock:
                ended = self._quarantine.succeeded(plugin, phase)
            if ended:
                QUARANTINED.labels(plugin).set(0)
                log.info("a plugin works again and is called as before", plugin=plugin, phase=phase)

    def quarantined(self) -> Sequence[Quarantined]:
        """Return the plugins that are not called, by name."""
        with self._lock:
            return self._quarantine.list()

    def detail(self) -> str | None:
        """Say which plugins are not called, to everybody who reads probes; errors may quote anything."""
        return "; ".join(_summary(each) for each in self.quarantined()) or None

    def close(self) -> None:
        """End the watchdog."""
        self._watchdog.close()

    def _gave_up(self, call: Call) -> None:
        replaced = call.on_stuck is not None
        STUCK.labels(call.plugin).inc()
        log.error(
            "a call of a plugin does not end; its thread is left to itself, and another one takes its place"
            if replaced
            else "a call of a plugin does not end, and everything else waits for it",
            plugin=call.plugin,
            phase=call.phase,
            error=str(call.error),
            hint="it waits for something outside of Python, for instance in time.sleep or for a socket: plugins decide "
            "and do no I/O; ask its author",
        )
        with self._lock:
            self._quarantine.gave_up(call.plugin)
        self._failed(call, call.error, exceeded=True)

    def _failed(self, call: Call, error: BaseException | None, *, exceeded: bool) -> None:
        text = text_of(error) if error is not None else ""
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
