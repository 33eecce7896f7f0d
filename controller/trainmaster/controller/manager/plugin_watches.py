"""Watches of plugins: which TrainJobs a change concerns by `Watch.jobs`.

Guarantees:
- E-4: what a plugin maps is remembered, so that those whom an object concerned before are enqueued as well. A state
  that cannot be mapped takes nothing away from the states before and after it: those whom the object concerned last
  are enqueued with every change until it can be mapped again. Whom an object concerns that never could be mapped
  nobody knows: that is logged.
- Where there are plugins of others, a thread maps (`ThreadedMapper`): one that does not return delays the events of its
  own kind, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import structlog

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.runtime.framework.watches import takes_listers
from trainmaster.runtime.jsontree import JsonObject, why_unreadable
from trainmaster.runtime.listers import NO_LISTERS, Listers, Watch

log = structlog.get_logger(__name__)

_LOGGED: Final = 10
"""Objects that fail at the same time and are named; of more of them the metrics of plugin calls tell how many."""


class JobMapper:
    """Maps changes by the `jobs` of a Watch, whose calls the framework times and counts."""

    def __init__(self, watch: Watch, listers: Listers = NO_LISTERS) -> None:
        assert watch.jobs is not None  # noqa: S101 - what this class is for
        self._watch = watch
        self._jobs = partial(watch.jobs, listers=listers) if takes_listers(watch.jobs) else watch.jobs
        self._last: dict[str, tuple[str, ...]] = {}
        """The TrainJobs that each object concerned when it was mapped last."""

        self._failing: set[str] = set()

    def __call__(self, change: Delta) -> Iterable[str]:
        """Return the keys of the TrainJobs that a change concerns."""
        return self.keys(change, self.map(change))

    def keys(self, change: Delta, after: tuple[str, ...] | None) -> Iterable[str]:
        """Return the keys of the TrainJobs that a change concerns, given what `map` returned, and remember that."""
        before = self._last.get(change.key, ())
        if change.is_deletion:
            self._last.pop(change.key, None)
            self._failing.discard(change.key)
        elif after:
            self._last[change.key] = after
        elif after is not None:
            self._last.pop(change.key, None)
        return dict.fromkeys((*before, *(after or ())))

    def map(self, change: Delta) -> tuple[str, ...] | None:
        """Map the state after a change, or the last one; None if that fails. Any thread may do so."""
        state: JsonObject | None = change.old if change.is_deletion else change.new
        assert state is not None  # noqa: S101 - there is one before or after
        if why_unreadable(state) is not None:
            return None  # the cache has told of it, and it is no fault of the plugin
        try:
            keys = tuple(dict.fromkeys(f"{namespace}/{name}" for namespace, name in self._jobs(state)))
        except Exception as error:
            self.log_failure(change.key, error)
            return None
        self._failing.discard(change.key)
        return keys

    def log_failure(self, key: str, error: Exception) -> None:
        """Name an object that cannot be mapped, once until it can; a burst of them is not a burst of lines."""
        if key in self._failing:
            return
        self._failing.add(key)
        if len(self._failing) <= _LOGGED:
            log.error(
                "a plugin cannot tell which TrainJobs an object concerns; those that it concerned last, if any, are "
                "reconciled; correct its Watch.jobs",
                plugin=self._watch.declared_by,
                kind=self._watch.kind,
                object=key,
                error=str(error),
                exc_info=error,
            )


class ThreadedMapper:
    """Has changes mapped in threads, one after the other; those of one object that wait meanwhile are mapped as one.

    Args:
        tell: Called with each change and the keys of the TrainJobs that it concerns.
    """

    def __init__(
        self, mapper: JobMapper, threads: PluginThreads, tell: Callable[[Delta, Iterable[str]], object]
    ) -> None:
        self._mapper = mapper
        self._threads = threads
        self._tell = tell
        self._waiting: dict[str, Delta] = {}
        self._task: asyncio.Task[None] | None = None

    def __call__(self, change: Delta) -> None:
        """Have a change mapped."""
        self._waiting[change.key] = change.apart()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="map-changes")

    async def _run(self) -> None:
        while self._waiting:
            change = self._waiting.pop(next(iter(self._waiting)))
            try:
                after = await self._threads.run(partial(self._mapper.map, change))
            except Exception as error:  # most likely it does not return
                self._mapper.log_failure(change.key, error)
                after = None
            self._tell(change, self._mapper.keys(change, after))
