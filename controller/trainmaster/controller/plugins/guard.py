"""The guard: stands around each call of a plugin of others (`runtime.framework.calls.CallGuard`).

Guarantees:
- A call of a plugin that is quarantined, because it kept failing, fails without being made.
- A call that takes longer than the time limit counts as failed. `threads` waits for it no longer, and the thread is
  left to the plugin: nothing ends a call from outside.
- A call may be made within another one: the inner one is looked at while it lasts, and alone counts as stuck.
- That a plugin is quarantined, and that it works again, is a line in the log, a metric and a detail of readiness.

Rules of the quarantine:
- A plugin is quarantined after so many failures in a row in one phase. Those of one TrainJob count once: it may be the
  job that is odd, and it is tried again and again. A call that takes too long counts each time: each costs everybody.
- After the period one call in the phase that failed is let through, while others wait for how it ends. Success ends
  the quarantine, failure begins it anew. Other phases are called meanwhile: the one call may depend on them.
- While a call that was given up has not come back, no further one is let through: each would take a thread. As many as
  it takes failures quarantine the plugin, whatever succeeded in between: it may be one TrainJob for which it hangs.
- A plugin is never quarantined for `applies_to`, and is asked that also while it is quarantined: nobody else knows
  which TrainJobs it does not serve, and those go on.
- The phases that take in events are refused only if they are what keeps failing: an event that a plugin is not called
  with is lost to it.
- A phase of which so many calls have not come back is called no more, `applies_to` and events among them.

The framework calls Trainmaster's own plugins without it: they are tested with everything else, and a plugin that all
TrainJobs need must not be lost to them because some of them are odd.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from trainmaster.controller.configuration import Plugins
from trainmaster.metrics.plugins import QUARANTINED, STUCK, count_refused_call
from trainmaster.runtime.api.meta import duration_seconds
from trainmaster.runtime.framework.calls import PluginQuarantined, TimeLimitExceeded, text_of
from trainmaster.runtime.framework.framework import INDEXING, MAPPING
from trainmaster.runtime.framework.interface import Rejected

T = TypeVar("T")

log = structlog.get_logger(__name__)

DECIDING: Final = "applies_to"
EVENTS: Final = (MAPPING, INDEXING)


@dataclass(slots=True)
class Quarantined:
    """A plugin that is not called."""

    plugin: str
    phase: str
    """The phase in which it kept failing."""

    failures: int
    why: str
    """Its last failure there, in words that everybody may read."""

    until: float = float("inf")
    is_tried: bool = False
    """Whether the one call has been let through."""

    def __str__(self) -> str:
        """Say so in words that follow the name of the plugin."""
        times = "a failure" if self.failures == 1 else f"{self.failures} failures in a row"
        return f"is quarantined after {times} in {self.phase}"


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
    given_up: Call | None = None
    """The call for which nobody waits any more, nor for the rest of the work."""


CURRENT: Final = ContextVar[Work | None]("plugin_work", default=None)
"""The work of the thread that asks."""


@dataclass(kw_only=True, eq=False)
class PluginGuard:
    """Guards the calls of plugins of others: `time_limit` is that of one call, in seconds."""

    time_limit: float
    failures: int
    """After how many failures in a row a plugin is quarantined."""

    period: float
    """Seconds until it is tried again."""

    now: Callable[[], float] = time.monotonic

    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held around each look at what follows, and each change of `Work.given_up`: calls end in any thread."""

    _failures: dict[tuple[str, str], set[object]] = field(default_factory=dict)
    """The failures in a row by plugin and phase: the TrainJob, or an object of its own where each time counts."""

    quarantined: dict[str, Quarantined] = field(default_factory=dict)
    _stuck: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls that were given up and have not come back, by plugin and phase."""

    def __call__(self, plugin: str, phase: str, job: str, make: Callable[[], T]) -> T:
        """Make a call, unless it is refused, and draw the conclusions from how it ends.

        Raises:
            PluginQuarantined: It must not be made.
            TimeLimitExceeded: The same work exceeded the limit in this plugin before, or nobody waits for it any more.
        """
        work = CURRENT.get() or Work()
        if work.given_up is not None:
            raise work.given_up.error
        if plugin in work.refused:
            raise work.refused[plugin]
        with self._lock:
            refusal = self._refusal(plugin, phase)
        if refusal is not None:
            count_refused_call(plugin, phase)
            raise PluginQuarantined(f"{refusal} ({refusal.why}); it is tried again every {self.period:g} s")
        call = Call(self, plugin, phase, job, self.now(), min(self.time_limit, work.time_limit))
        outer, work.call = work.call, call
        failure: BaseException | None = None
        try:
            return make()
        except BaseException as error:
            failure = None if isinstance(error, Rejected) else error  # a plugin that rejects has answered
            raise
        finally:
            self._end(work, call, outer, failure)

    def give_up(self, work: Work) -> bool:
        """Give up work in which a call takes too long; returns whether that is so."""
        with self._lock:
            call = work.call
            if call is None or self.now() - call.started <= call.limit:
                return False
            work.given_up = call
            self._stuck[call.plugin, call.phase] += 1
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

    def detail(self, failed: Collection[str] = ()) -> str | None:
        """Say which plugins did not load, and which are not called; not why, since probes are read by everybody."""
        left_out = [f"{', '.join(failed)} did not load"] if failed else []
        with self._lock:
            left_out += [f"{name} {each}" for name, each in sorted(self.quarantined.items())]
        return "; ".join(left_out) or None

    def _refusal(self, plugin: str, phase: str) -> Quarantined | None:
        """Return why a plugin must not be called now; None: it may be, and how the call ends has to be noted."""
        found = self.quarantined.get(plugin)
        if found is not None and (phase == DECIDING or (phase in EVENTS and phase != found.phase)):
            found = None
        stuck = self._stuck[plugin, phase]
        if stuck >= self.failures and (found is None or found.phase != phase):
            return Quarantined(plugin, phase, stuck, "it does not return")
        if found is None:
            return None
        is_stuck = any(calls for (name, _), calls in self._stuck.items() if name == plugin)
        if self.now() < found.until or is_stuck or (phase == found.phase and found.is_tried):
            return found
        found.is_tried = phase == found.phase or found.is_tried
        return None

    def _end(self, work: Work, call: Call, outer: Call | None, failure: BaseException | None) -> None:
        with self._lock:
            work.call, given_up = outer, work.given_up
            if given_up is call:
                self._stuck[call.plugin, call.phase] -= 1
            elif given_up is not None and (tried := self._tried(call)) is not None:
                tried.is_tried = False  # nobody knows how it would have ended
        if given_up is not None:
            if given_up is call:
                STUCK.labels(call.plugin).dec()
            raise given_up.error
        if self.now() - call.started > call.limit:
            failure = call.error
        if failure is not None:
            self._failed(call, failure)
            return
        with self._lock:
            self._failures.pop((call.plugin, call.phase), None)
            if (ended := self._tried(call)) is not None:
                del self.quarantined[call.plugin]
        if ended is not None:
            QUARANTINED.labels(call.plugin).set(0)
            log.info("a plugin works again and is called as before", plugin=call.plugin, phase=call.phase)

    def _tried(self, call: Call) -> Quarantined | None:
        """Return the quarantine that ends when a call succeeds."""
        found = self.quarantined.get(call.plugin)
        return found if found is not None and found.phase == call.phase and found.is_tried else None

    def _failed(self, call: Call, error: BaseException) -> None:
        if call.phase == DECIDING:
            return
        text, exceeded = text_of(error), isinstance(error, TimeLimitExceeded)
        # Owners of other TrainJobs get to read it: not what an error quotes of this one.
        why = f"it {text}" if exceeded else type(error).__name__
        place, until = (call.plugin, call.phase), self.now() + self.period
        with self._lock:
            if (found := self.quarantined.get(call.plugin)) is not None:
                # Also by a call that began before: what is known of the plugin has not become better.
                if found.phase == call.phase:
                    found.why, found.is_tried, found.until = why, False, until
                return
            failures = self._failures.setdefault(place, set())
            failures.add(object() if exceeded else call.job)
            if max(len(failures), self._stuck[place]) < self.failures:
                return
            del self._failures[place]
            self.quarantined[call.plugin] = Quarantined(call.plugin, call.phase, self.failures, why, until)
        QUARANTINED.labels(call.plugin).set(1)
        log.error(
            "a plugin kept failing and is quarantined: it is not called for a while",
            plugin=call.plugin,
            phase=call.phase,
            failures=self.failures,
            last=f"{type(error).__name__}: {text}",
            tried_again_after=f"{self.period:g} s",
            hint="see its errors above; until it is mended, leave it out by plugins.disabled of the configuration, "
            "or let TrainJobs go on without it by plugins.failurePolicy",
        )


def guard_of(settings: Plugins, *, now: Callable[[], float] = time.monotonic) -> PluginGuard:
    """Return the guard that a configuration asks for."""
    return PluginGuard(
        time_limit=duration_seconds(settings.time_limit),
        failures=settings.quarantine.failures,
        period=duration_seconds(settings.quarantine.period),
        now=now,
    )
