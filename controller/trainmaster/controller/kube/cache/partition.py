"""The partitions of an informer: what each of its reflectors reads, which is a namespace, or everything.

Guarantees:
- S-1, S-2: a snapshot of one namespace replaces what is stored of that namespace in one step, and nothing else.
- E-7: a kind that the server does not serve is looked for once every ten seconds, by one reflector for all namespaces;
  the others go on when that one has found it.
- R-27: who waits because the server was away need not wait to the end when somebody has found that it is back; who was
  told to wait does.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from trainmaster.controller.kube.cache.delta import Entry
from trainmaster.controller.kube.cache.listwatch import ListWatchFailure
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.watch import WatchEvent
from trainmaster.runtime.jsontree import JsonObject


class Lookout:
    """Which of several reflectors looks for a kind that is not served, while the others wait for what it finds."""

    def __init__(self) -> None:
        self._holder: Partition | None = None
        self._relieved = asyncio.Event()

    async def relieved(self) -> None:
        """Wait until whoever looks has found something."""
        await self._relieved.wait()

    def note(self, partition: Partition, *, is_not_served: bool) -> bool:
        """Take note of how a reflector fares; returns whether it is the one that looks for the kind now."""
        if is_not_served and self._holder is None:
            self._holder = partition
        if self._holder is partition and not is_not_served:
            self._holder = None
            self._relieved.set()
            self._relieved = asyncio.Event()
        return self._holder is partition


class Collector(Protocol):
    """The informer behind a partition."""

    def to_entry(self, obj: JsonObject) -> Entry:
        """Make of an object of a snapshot what is held in memory."""

    async def replace(self, partition: Partition, entries: list[Entry], resource_version: str) -> None:
        """Take a complete snapshot of a partition."""

    def handle_event(self, partition: Partition, event: WatchEvent, resource_version: str) -> None:
        """Take an event of a partition."""

    def update_resource_version(self, partition: Partition, resource_version: str) -> None:
        """Take a bookmark of a partition."""

    def state_changed(self) -> None:
        """Take note that a partition has synced, or fares otherwise than before."""

    def server_returned(self) -> None:
        """Take note that the server answers after it was away, or failed."""


class Partition:
    """What one reflector reads, and how it fares: the `ReflectorStore` of that reflector.

    Args:
        collector: What takes everything that is read.
        lookout: Who looks for a kind that is not served.
        outages: Who tells of what concerns all kinds.
        namespace: What is read; None: everything.
        optional: Whether nobody needs to wait for what the server refuses.
        absent_if_denied: Whether a kind counts as not served, too, that we have never been let read.
        clock: The time.
    """

    def __init__(
        self,
        collector: Collector,
        lookout: Lookout,
        namespace: str | None,
        *,
        outages: Outages,
        optional: bool,
        absent_if_denied: bool = False,
        clock: Clock,
    ) -> None:
        self.namespace = namespace
        self.has_synced = False
        self.is_ready = False
        """Whether nobody needs to wait: it has synced, or it is optional and was refused."""

        self.failure: ListWatchFailure | None = None
        self.undelivered = 0
        """Changes of a snapshot that event handlers have not heard of yet."""

        self._heard_at: float | None = None
        """When it heard of the server last, or began to read; None before that."""

        self.to_entry = collector.to_entry
        self._collector = collector
        self._lookout = lookout
        self._outages = outages
        self._optional = optional
        self._absent_if_denied = absent_if_denied
        self._clock = clock
        self._looks = False
        self._sleeping: asyncio.Future[None] | None = None

    @property
    def is_absent(self) -> bool:
        """Whether the server does not serve the kind, at least not to us."""
        if self.failure is None or self.failure.is_not_served:
            return self.failure is not None
        return self._absent_if_denied and self.failure.is_refused and not self.has_synced

    @property
    def is_waited_for(self) -> bool:
        """Whether it is being read, and somebody needs what has not come yet."""
        return self._heard_at is not None and not self.is_ready

    @property
    def age(self) -> float:
        """Seconds since it heard of the server last: by a snapshot, an event or a bookmark; 0 of what is not served, of
        what is optional and was never let be read, and before it is read at all.
        """
        nobody_waits = self.is_ready and not self.has_synced
        if self._heard_at is None or self.is_absent or nobody_waits:
            return 0.0
        return self._clock.monotonic() - self._heard_at

    def begin(self) -> None:
        """Take note that it is being read from now on."""
        self._heard_at = self._clock.monotonic()

    async def replace(self, entries: list[Entry], resource_version: str) -> None:
        """Take a complete snapshot."""
        self._heard_at = self._clock.monotonic()
        await self._collector.replace(self, entries, resource_version)
        self._lookout.note(self, is_not_served=False)
        if not self.has_synced:
            self.has_synced = self.is_ready = True
            self._collector.state_changed()

    def handle_event(self, event: WatchEvent, resource_version: str) -> None:
        """Take one event."""
        self._heard_at = self._clock.monotonic()
        self._collector.handle_event(self, event, resource_version)

    def update_resource_version(self, resource_version: str) -> None:
        """Take a bookmark."""
        self._heard_at = self._clock.monotonic()
        self._collector.update_resource_version(self, resource_version)

    def set_failure(self, failure: ListWatchFailure | None) -> bool:
        """Take note of why it cannot be read; returns whether that is news which nobody else tells."""
        was_away = self.failure is not None and self.failure.is_outage
        self.failure = failure
        is_not_served = failure is not None and failure.is_not_served
        self._looks = self._lookout.note(self, is_not_served=is_not_served)
        if failure is not None and failure.is_refused and self._optional:
            self.is_ready = True
        self._collector.state_changed()
        if was_away and failure is None:
            self._collector.server_returned()
        tells = self._outages.note(self, failure)
        return tells and (self._looks or not is_not_served)

    async def pause(self, failure: ListWatchFailure, delay: float) -> None:
        """Wait before another try."""
        if failure.is_not_served and not self._looks:
            await self._lookout.relieved()
        elif not failure.is_outage:
            await self._clock.sleep(delay)
        else:
            self._sleeping = asyncio.ensure_future(self._clock.sleep(delay))
            try:
                await asyncio.wait({self._sleeping})
            finally:
                self._sleeping.cancel()

    def try_again(self) -> None:
        """Wait no longer, if it is for the end of an outage."""
        if self._sleeping is not None:
            self._sleeping.cancel()
