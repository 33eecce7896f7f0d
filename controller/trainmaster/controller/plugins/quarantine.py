"""Quarantine: plugins that are not called for a while, because they kept failing. Pure; the time is given.

Rules:
- A plugin is quarantined after so many failures in a row in one phase. Those of one TrainJob count once: it may be the
  job that is odd, and it is tried again and again. That a limit was exceeded counts each time: each costs everybody.
- After the period one call in the phase that failed is let through, while others wait for how it ends. Success ends
  the quarantine, failure begins it anew. Other phases are called meanwhile: the one call may depend on them.
- While a call that was given up has not come back, no further one is let through: each would take a thread. As many as
  it takes failures quarantine the plugin, whatever succeeded in between: it may be one TrainJob for which it hangs.
- A plugin is never quarantined for `applies_to`, and asked that also while it is quarantined: nobody else knows which
  TrainJobs it does not serve, and those go on.
- A phase of which so many calls have not come back is called no more, `applies_to` and events among them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

DECIDING: Final = "applies_to"


@dataclass(slots=True)
class _Failures:
    """Failures in a row of one plugin in one phase."""

    jobs: set[str] = field(default_factory=set)
    exceeded: int = 0

    def __len__(self) -> int:
        return len(self.jobs) + self.exceeded


@dataclass(slots=True)
class _State:
    phase: str
    failures: int
    why: str
    until: float
    trying: bool = False


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A plugin that is not called."""

    plugin: str
    phase: str
    """The phase in which it kept failing."""

    failures: int
    why: str
    """Its last failure there, in words that everybody may read."""


class Quarantine:
    """Which plugins are quarantined.

    Args:
        failures: How many failures in a row it takes.
        period: Seconds until a call is let through.
    """

    def __init__(self, *, failures: int, period: float) -> None:
        self._limit = failures
        self.period = period
        self._failures: dict[tuple[str, str], _Failures] = {}
        self._quarantined: dict[str, _State] = {}
        self._stuck = Counter[tuple[str, str]]()
        """Calls that were given up and have not come back, by plugin and phase."""

    def enter(self, plugin: str, phase: str, *, now: float) -> Quarantined | None:
        """Return why a plugin must not be called now; None: it may be, and `succeeded` or `failed` has to follow."""
        state = None if phase == DECIDING else self._quarantined.get(plugin)
        stuck = self._stuck[plugin, phase]
        if stuck >= self._limit and (state is None or state.phase != phase):
            return Quarantined(plugin, phase, stuck, "it does not return")
        if state is None:
            return None
        if now < state.until or self._is_stuck(plugin) or (phase == state.phase and state.trying):
            return _shown(plugin, state)
        if phase == state.phase:
            state.trying = True
        return None

    def succeeded(self, plugin: str, phase: str) -> bool:
        """Take in that a call came to a good end; returns whether that ends the quarantine of the plugin."""
        if self._failures:
            self._failures.pop((plugin, phase), None)
        state = self._quarantined.get(plugin)
        if state is None or state.phase != phase or not state.trying:
            return False
        del self._quarantined[plugin]
        return True

    def failed(self, plugin: str, phase: str, job: str, *, why: str, exceeded: bool, now: float) -> Quarantined | None:
        """Take in that a call failed.

        Args:
            plugin: The plugin.
            phase: What was called.
            job: The TrainJob that it was called for.
            why: The failure.
            exceeded: Whether it exceeded a limit.
            now: The time.

        Returns: The plugin, if it is quarantined because of this failure and was not before.
        """
        if phase == DECIDING:
            return None
        state = self._quarantined.get(plugin)
        if state is not None:
            # Also by a call that began before: what is known of the plugin has not become better.
            if state.phase == phase:
                state.why, state.trying, state.until = why, False, now + self.period
            return None
        failures = self._failures.setdefault((plugin, phase), _Failures())
        if exceeded:
            failures.exceeded += 1
        else:
            failures.jobs.add(job)
        if max(len(failures), self._stuck[plugin, phase]) < self._limit:
            return None
        del self._failures[plugin, phase]
        state = self._quarantined[plugin] = _State(phase, self._limit, why, now + self.period)
        return _shown(plugin, state)

    def gave_up(self, plugin: str, phase: str) -> None:
        """Take in that a call does not come back; its failure is told by `failed` as well."""
        self._stuck[plugin, phase] += 1

    def came_back(self, plugin: str, phase: str) -> None:
        """Take in that a call that was given up has ended after all."""
        self._stuck[plugin, phase] -= 1

    def _is_stuck(self, plugin: str) -> bool:
        return any(calls for (name, _), calls in self._stuck.items() if name == plugin)

    def list(self) -> list[Quarantined]:
        """Return the plugins that are quarantined, by name."""
        return [_shown(plugin, state) for plugin, state in sorted(self._quarantined.items())]


def _shown(plugin: str, state: _State) -> Quarantined:
    return Quarantined(plugin, state.phase, state.failures, state.why)
