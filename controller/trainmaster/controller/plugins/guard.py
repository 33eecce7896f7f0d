"""The guard: stands around each call of a plugin of others (`runtime.framework.calls.CallGuard`).

Guarantees:
- A call of a plugin that is quarantined fails without being made.
- A call that takes longer than the time limit counts as failed. `threads` waits for it no longer, and the thread is
  left to the plugin: nothing ends a call from outside.
- That a plugin is quarantined, and that it works again, is a line in the log, a metric and a detail of readiness.

The framework calls Trainmaster's own plugins without it: they are tested with everything else, and a plugin that all
TrainJobs need must not be lost to them because some of them are odd.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from trainmaster.controller.configuration import Plugins, seconds
from trainmaster.controller.plugins.quarantine import Quarantine, Quarantined
from trainmaster.metrics.plugins import QUARANTINED, STUCK, count_refused_call
from trainmaster.runtime.framework.calls import PluginQuarantined, TimeLimitExceeded, text_of
from trainmaster.runtime.framework.interface import Rejected

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is under way."""

    guard: PluginGuard
    plugin: str
    phase: str
    job: str
    started: float
    limit: float

    @property
    def error(self) -> TimeLimitExceeded:
        """What it fails with if it takes too long."""
        return TimeLimitExceeded(f"took longer than {self.limit:g} s in {self.phase}")


@dataclass(slots=True, eq=False)
class Work:
    """What a thread is at: some calls, one after the other."""

    time_limit: float = float("inf")
    """Seconds that a call may take, if that is less than the guard allows."""

    refused: Mapping[str, TimeLimitExceeded] = field(default_factory=dict)
    """Plugins that are not called, with the reason: the work is being done again because of them."""

    call: Call | None = None
    given_up: TimeLimitExceeded | None = None
    """Why nobody waits for it any more."""


CURRENT: Final = ContextVar[Work | None]("plugin_work", default=None)
"""The work of the thread that asks."""


class PluginGuard:
    """Guards the calls of plugins of others.

    Args:
        time_limit: Seconds that one call may take.
        failures: After how many failures in a row a plugin is quarantined.
        period: Seconds until it is tried again.
        now: The time.
    """

    def __init__(
        self, *, time_limit: float, failures: int, period: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._time_limit = time_limit
        self._quarantine = Quarantine(failures=failures, period=period)
        self._now = now
        self._lock = threading.Lock()
        """Held around each look at the quarantine and change of `Work.given_up`: calls end in any thread."""

    def __call__(self, plugin: str, phase: str, job: str, make: Callable[[], T]) -> T:
        """Make a call, unless it is refused, and draw the conclusions from how it ends.

        Raises:
            PluginQuarantined: It must not be made.
            TimeLimitExceeded: The same work exceeded the limit in this plugin before, or nobody waits for it any more.
        """
        work = CURRENT.get() or Work()
        if (reason := work.given_up or work.refused.get(plugin)) is not None:
            raise reason
        with self._lock:
            quarantined = self._quarantine.enter(plugin, phase, now=self._now())
        if quarantined is not None:
            count_refused_call(plugin, phase)
            period = self._quarantine.period
            raise PluginQuarantined(f"{quarantined} ({quarantined.why}); it is tried again every {period:g} s")
        call = work.call = Call(self, plugin, phase, job, self._now(), min(self._time_limit, work.time_limit))
        failure: BaseException | None = None
        try:
            return make()
        except BaseException as error:
            failure = None if isinstance(error, Rejected) else error  # a plugin that rejects has answered
            raise
        finally:
            self._end(work, call, failure)

    def give_up(self, work: Work) -> bool:
        """Give up work in which a call takes too long; returns whether that is so."""
        with self._lock:
            call = work.call
            if call is None or self._now() - call.started <= call.limit:
                return False
            work.given_up = call.error
            self._quarantine.gave_up(call.plugin, call.phase)
        STUCK.labels(call.plugin).inc()
        log.error(
            "a call of a plugin takes too long; its thread is left to it, and another one takes its place",
            plugin=call.plugin,
            phase=call.phase,
            error=str(call.error),
            hint="plugins decide, and neither wait nor do I/O; ask its author",
        )
        self._failed(call, call.error)
        return True

    def quarantined(self) -> list[Quarantined]:
        """Return the plugins that are not called, by name."""
        with self._lock:
            return self._quarantine.list()

    def detail(self, failed: Collection[str] = ()) -> str | None:
        """Say to everybody who reads probes which plugins did not load, and which are not called.

        Not why: errors may quote anything.
        """
        left_out = [f"{', '.join(failed)} did not load"] if failed else []
        return "; ".join([*left_out, *(f"{each.plugin} {each}" for each in self.quarantined())]) or None

    def _end(self, work: Work, call: Call, failure: BaseException | None) -> None:
        with self._lock:
            work.call = None
            if work.given_up is not None:
                self._quarantine.came_back(call.plugin, call.phase)
        if work.given_up is not None:
            STUCK.labels(call.plugin).dec()
            raise work.given_up
        if self._now() - call.started > call.limit:
            failure = call.error
        if failure is not None:
            self._failed(call, failure)
            return
        with self._lock:
            ended = self._quarantine.succeeded(call.plugin, call.phase)
        if ended:
            QUARANTINED.labels(call.plugin).set(0)
            log.info("a plugin works again and is called as before", plugin=call.plugin, phase=call.phase)

    def _failed(self, call: Call, error: BaseException) -> None:
        text, exceeded = text_of(error), isinstance(error, TimeLimitExceeded)
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
                tried_again_after=f"{self._quarantine.period:g} s",
                hint="see its errors above; until it is mended, leave it out by plugins.disabled of the configuration, "
                "or let TrainJobs go on without it by plugins.failurePolicy",
            )


def guard_of(settings: Plugins, *, now: Callable[[], float] = time.monotonic) -> PluginGuard:
    """Return the guard that a configuration asks for."""
    return PluginGuard(
        time_limit=seconds(settings.time_limit),
        failures=settings.quarantine.failures,
        period=seconds(settings.quarantine.period),
        now=now,
    )
