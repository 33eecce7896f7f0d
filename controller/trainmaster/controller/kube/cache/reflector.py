"""The reflector of a collection: takes snapshots and follows watches, for ever.

Guarantees:
- R-1, R-2, R-4: a snapshot is a streaming list where the server offers it (`watchlist`). It reaches the store in one
  step and only when it is complete; the same stream then goes on as the watch. Any failure of a streaming list falls
  back to list requests (`pager`), for that attempt; only where those would fare no better (no connection, no answer, no
  such kind, 429) it waits.
- R-8, R-11, R-12: the first snapshot is the newest state, so that nobody who has just started acts on an older one than
  its predecessor saw. Later ones are not older than the last version; where the server cannot serve that, the newest
  state is read at once. After a list that took too long the newest state is read as well: it comes in pages.
- R-13, R-22: progress is the version of the list, then of each event and bookmark, recorded after the store has it.
- R-20, R-21: each watch asks for an end after five to ten minutes and for bookmarks, and needs neither.
- R-23, R-32, P-5: a watch that ends, breaks or falls silent is opened again at the last version, without a list.
- R-24, P-7: a watch that ends at once without progress counts as a failure, and after several that ended at once with
  some the next one waits a second, so that nothing can make this loop spin.
- R-25, R-26, R-28, R-31, P-6: connection failures and 429 back off and keep the version; 410, as a status or in the
  stream, takes a snapshot again, at once unless that was so a short while ago, and first at the last version;
  everything else does so after a wait. No answer ends this loop.
- R-27: failures back off until a watch makes progress; they are logged once for each change of state, not for each try.
- E-7: a kind that the server does not serve is tried every ten seconds.

The store is called from one task only, in the order of the server. The reflector keeps no objects.
"""

from __future__ import annotations

import random as randomness
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import structlog

from trainmaster.controller.kube.cache.backoff import Backoff, YieldBudget
from trainmaster.controller.kube.cache.delta import Entry
from trainmaster.controller.kube.cache.listwatch import (
    Collection,
    ListWatcher,
    ListWatchFailure,
    Snapshot,
    Verb,
    failure_of,
    restart_cause,
    version_of_event,
)
from trainmaster.controller.kube.cache.pager import ListPager
from trainmaster.controller.kube.cache.watchlist import collect_initial_events
from trainmaster.controller.kube.clock import Clock, Random, SystemClock
from trainmaster.controller.kube.rest.errors import (
    ApiError,
    Gone,
    KubeError,
    NotConnected,
    NotFound,
    RequestTimeout,
    StreamBroken,
    TooManyRequests,
    TransportError,
)
from trainmaster.controller.kube.rest.watch import WatchEvent, WatchStream
from trainmaster.metrics.cache import InformerMetrics, SnapshotMethod
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

_TIMEOUT_RANGE: Final = (300.0, 600.0)
_SHORT_WATCH: Final = 1.0
_SHORT_WATCHES: Final = 5
"""So many short watches in a row that brought something are followed by the next one at once."""

_RETRY_AFTER_AT_MOST: Final = 60.0
_EXPIRY_INTERVAL: Final = 60.0
"""Seconds in which a watch may expire once; a second time means that our snapshots do not help."""

_ABSENT_INTERVAL: Final = 10.0
"""Seconds between looks for a kind that is not served; as controller-runtime waits for one."""


class ReflectorStore(Protocol):
    """Where a reflector puts what it reads."""

    def to_entry(self, obj: JsonObject) -> Entry:
        """Make of an object of a snapshot what is held in memory."""

    async def replace(self, entries: list[Entry], resource_version: str) -> None:
        """Take a complete snapshot."""

    def handle_event(self, event: WatchEvent, resource_version: str) -> None:
        """Take an ADDED, MODIFIED or DELETED event."""

    def update_resource_version(self, resource_version: str) -> None:
        """Take a bookmark: nothing changed up to this version."""

    def set_failure(self, failure: ListWatchFailure | None) -> bool:
        """Take note of why the collection cannot be read, or, by None, that it can be read again.

        Returns whether that is news: another reflector may have met the same.
        """

    async def pause(self, failure: ListWatchFailure, delay: float) -> None:
        """Wait before another try, for so many seconds or until there is reason to try."""


class Reflector:
    """Reads one collection into a store.

    Args:
        client: Where it reads from.
        collection: What it reads.
        store: Where it puts that.
        optional: Whether it is nothing special if the server does not serve the collection.
        clock: The time.
        random: Where jitter comes from.
        metrics: What counts it.
    """

    def __init__(
        self,
        client: ListWatcher,
        collection: Collection,
        store: ReflectorStore,
        *,
        optional: bool = False,
        clock: Clock | None = None,
        random: Random = randomness.random,
        metrics: InformerMetrics | None = None,
    ) -> None:
        self._client = client
        self._collection = collection
        self._resource = resource = collection.resource
        self._store = store
        self._optional = optional
        self._clock = clock or SystemClock()
        self._random = random
        self._metrics = metrics or InformerMetrics(resource.name)
        self._pager = ListPager(client, collection, store.to_entry, clock=self._clock)
        self._backoff = Backoff(clock=self._clock, random=random)
        self._expired_at = -_EXPIRY_INTERVAL
        self._version = ""
        self._version_unusable = False
        self._verb: Verb = "watch"
        self._accepted = False
        """Whether the server has accepted the request of `_verb`."""
        self._short_watches = 0
        self._failure: ListWatchFailure | None = None
        self._told = False
        names = {"namespace": collection.namespace} if collection.namespace else {}
        self._log = log.bind(resource=resource.name, **names)

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                await self._list_and_watch()
            except KubeError as error:
                if not self._expired_for_once(error):
                    await self._pause(error)

    async def _list_and_watch(self) -> None:
        """Take a snapshot and follow it until something requires another one."""
        if not await self._watch_list():
            await self._list()
        while True:
            await self._watch_once()

    # Snapshots

    async def _watch_list(self) -> bool:
        """Take a snapshot by a streaming list and follow its stream; False if this way gave no snapshot."""
        complete = False
        try:
            async with self._watch("" if self._version_unusable else self._version, send_initial_events=True) as stream:
                self._accepted = True
                events = aiter(stream)
                snapshot = await collect_initial_events(
                    events, self._collection, self._store.to_entry, clock=self._clock, warn=self._warn_of_silence
                )
                await self._replace("streaming", snapshot)
                complete = True
                await self._follow(events)
        except KubeError as error:
            if complete:
                await self._watch_failed(error)
            elif isinstance(error, NotConnected | NotFound | RequestTimeout | TooManyRequests):
                # A list request would fare no better.
                raise
            else:
                self._log.debug("streaming list failed", error=str(error))
        else:
            self._metrics.restarted("ended")
        return complete

    def _warn_of_silence(self, seconds: float, count: int) -> None:
        self._log.warning("the snapshot is not complete and nothing comes", seconds=seconds, events=count)

    def _expired_for_once(self, error: KubeError) -> bool:
        """Whether this is a watch that has expired, for the first time in a while: the server is well, so go on."""
        if not isinstance(error, Gone) or self._verb != "watch":
            return False
        since, self._expired_at = self._expired_at, self._clock.monotonic()
        return self._expired_at - since >= _EXPIRY_INTERVAL

    async def _list(self) -> None:
        """Take a snapshot by list requests."""
        self._verb, self._accepted = "list", False
        version = "" if self._version_unusable else self._version
        try:
            snapshot = await self._pager.list(version)
        except RequestTimeout:
            # A list at a version comes in one go, and the next one would take as long. The newest state comes in pages.
            self._version_unusable = True
            raise
        except ApiError as error:
            if not version or not (isinstance(error, Gone) or error.resource_version_too_large):
                raise
            self._version_unusable = True
            snapshot = await self._pager.list("")
        await self._replace("list", snapshot)

    async def _replace(self, method: SnapshotMethod, snapshot: Snapshot) -> None:
        """Hand a complete snapshot to the store."""
        entries, version = snapshot
        await self._store.replace(entries, version)
        self._version = version
        self._version_unusable = False
        self._metrics.snapshot(method)
        # A list says nothing of a watch that cannot be had: that it fails again would be logged again.
        if self._failure is not None and (
            self._verb == "watch" or self._failure.verb == "list" or self._failure.is_not_served
        ):
            self._recovered()

    # Watches

    async def _watch_once(self) -> None:
        """Follow one watch from the last version to its end."""
        started, version = self._clock.monotonic(), self._version
        try:
            async with self._watch(version) as stream:
                self._accepted = True
                await self._follow(aiter(stream))
        except KubeError as error:
            await self._watch_failed(error)
            if not (self._accepted and isinstance(error, TransportError)):
                return
        else:
            self._metrics.restarted("ended")
        is_short = self._clock.monotonic() - started < _SHORT_WATCH
        # Progress is the measure, not events: a bookmark that repeats must not keep this loop spinning either.
        if self._version == version and is_short:
            self._metrics.restarted("short")
            raise StreamBroken(f"the watch of {self._resource.name} ended at once without an event")
        self._recovered()
        self._short_watches = self._short_watches + 1 if is_short else 0
        if self._short_watches > _SHORT_WATCHES:
            await self._clock.sleep(_SHORT_WATCH)

    async def _watch_failed(self, error: KubeError) -> None:
        """Take the failure of a watch: return if it may go on at the last version, raise if it needs a snapshot."""
        self._metrics.restarted(restart_cause(error, opened=self._accepted))
        if isinstance(error, TooManyRequests) or (isinstance(error, TransportError) and not self._accepted):
            await self._pause(error)
        elif isinstance(error, TransportError):
            self._log.debug("watch broke", error=str(error))
        else:
            raise error

    async def _follow(self, events: AsyncIterator[WatchEvent]) -> None:
        """Hand events to the store until the stream ends."""
        budget, monotonic = YieldBudget(), self._clock.monotonic
        async for event in events:
            started = monotonic()
            self._metrics.event()
            version = version_of_event(event, self._resource)
            if version != self._version:
                self._backoff.reset()
            if event.type == "BOOKMARK":
                self._store.update_resource_version(version)
                self._version = version
            elif self._collection.accepts(event.object):
                self._store.handle_event(event, version)
                self._version = version
            if self._failure is not None:
                self._recovered()
            if budget.spent(event.size, monotonic() - started):
                await self._clock.sleep(0)

    def _watch(self, version: str, *, send_initial_events: bool = False) -> AbstractAsyncContextManager[WatchStream]:
        shortest, longest = _TIMEOUT_RANGE
        self._verb, self._accepted = "watch", False
        self._metrics.watching()
        return self._client.watch(
            self._resource,
            namespace=self._collection.namespace,
            resource_version=version,
            label_selector=self._collection.label_selector,
            field_selector=self._collection.field_selector,
            timeout_seconds=shortest + (longest - shortest) * self._random(),
            send_initial_events=send_initial_events,
            metadata_only=self._collection.metadata_only,
        )

    # Details

    async def _pause(self, error: KubeError) -> None:
        """Wait after a failure; log it only if it is another one than before."""
        failure = failure_of(error, self._collection, self._verb, accepted=self._accepted)
        if failure.is_not_served:
            delay = _ABSENT_INTERVAL
        else:
            delay = self._backoff.next_delay()
            if isinstance(error, ApiError) and error.retry_after is not None:
                delay = max(delay, min(error.retry_after, _RETRY_AFTER_AT_MOST))
            self._metrics.failed()
        is_news = self._store.set_failure(failure)
        if failure.is_same_as(self._failure):
            write = self._log.debug
        else:
            # Who uses an optional kind is told where it is used; to everybody else its absence means nothing.
            self._told = is_news and not (self._optional and failure.is_not_served) and not failure.is_told
            write = self._log.info if self._optional and failure.is_refused else self._log.warning
            write = write if self._told else self._log.debug
        self._failure = failure
        details = {} if failure.text == str(error) else {"error": str(error)}
        write("collection cannot be read, trying again", reason=failure.text, **details, delay=round(delay, 2))
        await self._store.pause(failure, delay)

    def _recovered(self) -> None:
        if self._failure is not None:
            self._failure = None
            self._store.set_failure(None)
            (self._log.info if self._told else self._log.debug)("collection can be read again")
