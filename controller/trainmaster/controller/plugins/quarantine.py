"""Quarantine: plugins that are not called for a while, because they kept failing. Pure; the time is given.

Rules:
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
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from trainmaster.runtime.framework.framework import INDEXING, MAPPING

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


class Quarantine:
    """The plugins that are quarantined.

    Args:
        failures: How many failures in a row it takes.
        period: Seconds until a call is let through.
    """

    def __init__(self, *, failures: int, period: float) -> None:
        self._limit = failures
        self.period = period
        self._failures: dict[tuple[str, str], set[object]] = {}
        """The failures in a row by plugin and phase: the TrainJob, or an object of its own where each time counts."""

        self._quarantined: dict[str, Quarantined] = {}
        self._stuck = Counter[tuple[str, str]]()
        """Calls that were given up and have not come back, by plugin and phase."""

    def enter(self, plugin: str, phase: str, *, now: float) -> Quarantined | None:
        """Return why a plugin must not be called now; None: it may be, and `succeeded` or `failed` has to follow."""
        found = self._quarantined.get(plugin)
        if found is not None and (phase == DECIDING or (phase in EVENTS and phase != found.phase)):
            found = None
        stuck = self._stuck[plugin, phase]
        if stuck >= self._limit and (found is None or found.phase != phase):
            return Quarantined(plugin, phase, stuck, "it does not return")
        if found is None:
            return None
        if now < found.until or self._is_stuck(plugin) or (phase == found.phase and found.is_tried):
            return found
        found.is_tried = phase == found.phase or found.is_tried
        return None

    def succeeded(self, plugin: str, phase: str) -> bool:
        """Take in that a call came to a good end; returns whether that ends the quarantine of the plugin."""
        if self._failures:
            self._failures.pop((plugin, phase), None)
        found = self._quarantined.get(plugin)
        if found is None or found.phase != phase or not found.is_tried:
            return False
        del self._quarantined[plugin]
        return True

    def failed(self, plugin: str, phase: str, job: str, *, why: str, exceeded: bool, now: float) -> Quarantined | None:
        """Take in that a call for a TrainJob failed, or exceeded the time limit.

        Returns: The plugin, if it is quarantined because of this failure and was not before.
        """
        if phase == DECIDING:
            return None
        found = self._quarantined.get(plugin)
        if found is not None:
            # Also by a call that began before: what is known of the plugin has not become better.
            if found.phase == phase:
                found.why, found.is_tried, found.until = why, False, now + self.period
            return None
        failures = self._failures.setdefault((plugin, phase), set())
        failures.add(object() if exceeded else job)
        if max(len(failures), self._stuck[plugin, phase]) < self._limit:
            return None
        del self._failures[plugin, phase]
        found = self._quarantined[plugin] = Quarantined(plugin, phase, self._limit, why, now + self.period)
        return found

    def gave_up(self, plugin: str, phase: str) -> None:
        """Take in that a call does not come back; `failed` is called as well."""
        self._stuck[plugin, phase] += 1

    def came_back(self, plugin: str, phase: str) -> None:
        """Take in that a call that was given up has ended after all."""
        self._stuck[plugin, phase] -= 1

    def _is_stuck(self, plugin: str) -> bool:
        return any(calls for (name, _), calls in self._stuck.items() if name == plugin)

    def list(self) -> list[Quarantined]:
        """Return the plugins that are quarantined, by name."""
        return [found for _, found in sorted(self._quarantined.items())]
