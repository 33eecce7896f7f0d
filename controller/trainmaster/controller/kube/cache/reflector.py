"""The reflector of a collection: takes snapshots and follows watches, for ever; knows how that goes.

Guarantees:
- R-1, R-2, R-4: a snapshot is a streaming list where the server offers it. It reaches the store in one
  step and only when it is complete; the same stream then goes on as the watch. Any failure of a streaming list falls
  back to list requests, for that attempt; only where those would fare no better (no connection, no answer, no
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
  A quiet watch that stays open is the end of one, too.
- E-7: a kind that the server does not serve is tried every ten seconds.

Calls go one way: the reflector calls its store, which is the informer, from one task only and in the order of the
server; and `Outages`, which it shares with other reflectors. It keeps no objects.
"""

from __future__ import annotations

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
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.cache.snapshot import collect_initial_events, list_collection
from trainmaster.controller.kube.clock import Clock, Random
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
    """Where reflectors put what they read; `namespace` is what one of them reads, None everything."""

    def to_entry(self, obj: JsonObject) -> Entry:
        """Return what is kept of an object of a snapshot."""

    async def replace(self, entries: list[Entry], version: str, *, namespace: str | None, initial: bool) -> None:
        """Take a complete snapshot; `initial` is the first one."""

    def handle_event(self, event: WatchEvent, version: str, *, namespace: str | None) -> None:
        """Take an ADDED, MODIFIED or DELETED event."""

    def update_resource_version(self, version: str, *, namespace: str | None) -> None:
        """Take a bookmark: nothing changed up to this version."""

    def state_changed(self) -> None:
        """Take note that a reflector has synced, or that its `failure` has changed."""


class Reflector:
    """Reads one collection into a store.

    Args:
        optional: Whether nobody needs to wait for what the server does not serve, or refuses.
        absent_if_denied: Whether a kind counts as not served, too, that we have never been allowed to read.
    """

    def __init__(
        self,
        client: ListWatcher,
        collection: Collection,
        store: ReflectorStore,
        *,
        outages: Outages,
        optional: bool,
        absent_if_denied: bool,
        clock: Clock,
        random: Random,
        metrics: InformerMetrics,
    ) -> None:
        self.has_synced = False
        self.is_ready = False
        """Whether nobody needs to wait: it has synced, or it is optional and was refused."""

        self.failure: ListWatchFailure | None = None
        """Why the collection cannot be read at present."""

        self._client = client
        self._collection = collection
        self._resource = collection.resource
        self._namespace = collection.namespace
        self._store = store
        self._outages = outages
        self._optional = optional
        self._absent_if_denied = absent_if_denied
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._backoff = Backoff(clock=clock, random=random)
        self._heard_at: float | None = None
        """When it heard of the server last, or began to read; None before that."""

        self._expired_at = -_EXPIRY_INTERVAL
        self._version = ""
        self._version_unusable = False
        self._verb: Verb = "watch"
        self._accepted = False
        """Whether the server has accepted the request of `_verb`."""

        self._short_watches = 0
        self._logged = False
        """Whether the failure was logged above debug level."""

        names = {"namespace": collection.namespace} if collection.namespace else {}
        self._log = log.bind(resource=self._resource.name, **names)

    # How it goes

    @property
    def is_absent(self) -> bool:
        """Whether the server does not serve the kind, at least not to us."""
        if self.failure is None or self.failure.is_not_served:
            return self.failure is not None
        return self._absent_if_denied and self.failure.is_refused and not self.has_synced

    @property
    def is_waited_for(self) -> bool:
        """Whether it reads, and somebody needs what has not come yet."""
        return self._heard_at is not None and not self.is_ready

    @property
    def age(self) -> float:
        """Seconds since it heard of the server last: by a snapshot, an event or a bookmark.

        0 of what is not served, of what is optional and could never be read, and before it reads at all.
        """
        nobody_waits = self.is_ready and not self.has_synced
        if self._heard_at is None or self.is_absent or nobody_waits:
            return 0.0
        return self._clock.monotonic() - self._heard_at

    async def run(self) -> None:
        """Read until cancelled."""
        self._heard_at = self._clock.monotonic()
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
                if self.failure is not None and self.failure.is_not_served:
                    self._outages.end(self)  # it is served now; the snapshot may take its time
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
            self._metrics.restarts["ended"].inc()
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
            snapshot = await self._list_at(version)
        except RequestTimeout:
            # A list at a version comes in one go, and the next one would take as long. The newest state comes in pages.
            self._version_unusable = True
            raise
        except ApiError as error:
            if not version or not (isinstance(error, Gone) or error.resource_version_too_large):
                raise
            self._version_unusable = True
            snapshot = await self._list_at("")
        await self._replace("list", snapshot)

    async def _list_at(self, version: str) -> Snapshot:
        return await list_collection(self._client, self._collection, self._store.to_entry, version, clock=self._clock)

    async def _replace(self, method: SnapshotMethod, snapshot: Snapshot) -> None:
        """Hand a complete snapshot to the store."""
        entries, version = snapshot
        self._heard_at = self._clock.monotonic()
        await self._store.replace(entries, version, namespace=self._namespace, initial=not self.has_synced)
        self._version = version
        self._version_unusable = False
        self._metrics.snapshots[method].inc()
        if not self.has_synced:
            self.has_synced = self.is_ready = True
            self._store.state_changed()
        # A list says nothing of a watch that cannot be had: that it fails again would be logged again.
        if self.failure is not None and (
            self._verb == "watch" or self.failure.verb == "list" or self.failure.is_not_served
        ):
            self._recovered()

    # Watches

    async def _watch_once(self) -> None:
        """Follow one watch from the last version to its end."""
        started, version = self._clock.monotonic(), self._version
        try:
            async with self._watch(version) as stream:
                self._accepted = True
                opened = self._clock.call_at(self._clock.monotonic() + _SHORT_WATCH, self._recovered)
                try:
                    await self._follow(aiter(stream))
                finally:
                    opened.cancel()
        except KubeError as error:
            await self._watch_failed(error)
            if not (self._accepted and isinstance(error, TransportError)):
                return
        else:
            self._metrics.restarts["ended"].inc()
        is_short = self._clock.monotonic() - started < _SHORT_WATCH
        # Progress is the measure, not events: a bookmark that repeats must not keep this loop spinning either.
        if self._version == version and is_short:
            self._metrics.restarts["short"].inc()
            raise StreamBroken(f"the watch of {self._resource.name} ended at once without an event")
        self._recovered()
        self._short_watches = self._short_watches + 1 if is_short else 0
        if self._short_watches > _SHORT_WATCHES:
            await self._clock.sleep(_SHORT_WATCH)

    async def _watch_failed(self, error: KubeError) -> None:
        """Take the failure of a watch: return if it may go on at the last version, raise if it needs a snapshot."""
        self._metrics.restarts[restart_cause(error, opened=self._accepted)].inc()
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
            self._metrics.events.inc()
            version = version_of_event(event, self._resource)
            if version != self._version:
                self._backoff.reset()
            self._heard_at = started
            if event.type == "BOOKMARK":
                self._store.update_resource_version(version, namespace=self._namespace)
                self._version = version
            elif self._collection.accepts(event.object):
                self._store.handle_event(event, version, namespace=self._namespace)
                self._version = version
            if self.failure is not None:
                self._recovered()
            if budget.spent(event.size, monotonic() - started):
                await self._clock.sleep(0)

    def _watch(self, version: str, *, send_initial_events: bool = False) -> AbstractAsyncContextManager[WatchStream]:
        shortest, longest = _TIMEOUT_RANGE
        self._verb, self._accepted = "watch", False
        self._metrics.watches.inc()
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
            self._metrics.failures.inc()
        before, logs = self.failure, self._set_failure(failure)
        if before is not None and before.identity == failure.identity:
            write = self._log.debug
        else:
            # Who uses an optional kind is told where it is used; to everybody else its absence means nothing.
            self._logged = logs and not (self._optional and failure.is_not_served) and not failure.is_told
            write = self._log.info if self._optional and failure.is_refused else self._log.warning
            write = write if self._logged else self._log.debug
        details = {} if failure.text == str(error) else {"error": str(error)}
        write("collection cannot be read, trying again", reason=failure.text, **details, delay=round(delay, 2))
        await self._outages.wait(self, failure, delay)

    def _recovered(self) -> None:
        if self.failure is not None:
            self._set_failure(None)
            (self._log.info if self._logged else self._log.debug)("collection can be read again")

    def _set_failure(self, failure: ListWatchFailure | None) -> bool:
        """Record why the collection cannot be read; returns whether this reflector is the one that logs it."""
        self.failure = failure
        if failure is not None and failure.is_refused and self._optional:
            self.is_ready = True
        self._store.state_changed()
        return self._outages.note(self, failure)
