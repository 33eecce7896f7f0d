"""The reader of a collection: takes snapshots and follows watches, for ever.

Guarantees:
- R-1, R-3, R-4: a snapshot is a streaming list where the server offers it. It reaches the sink in one step and only
  when it is complete; the same stream then goes on as the watch.
- R-5: what came of a snapshot that broke off is thrown away. Any failure of a streaming list falls back to list
  requests, for that attempt; only where those would fail too (no connection, 429) it waits.
- R-7: the versions of initial events mean no progress.
- R-8 to R-11: lists start from the server's cache, are paged where that costs the server nothing, and go to a quorum
  read at once when the server cannot serve the version we ask for.
- R-13, R-22: progress is the version of the list, then of each event and bookmark, recorded after the sink has it.
- R-23, R-32: a watch that ends, breaks or falls silent is opened again at the last version, without a list.
- R-24: a watch that ends at once without an event counts as a failure, so that nothing can make this loop spin.
- R-25, R-26, R-28: connection failures and 429 back off and keep the version; 410, as a status or in the stream, lists
  again, first at the last version.
- R-27: failures back off; they are logged once for each change of state, not once for each try.

The sink is called from one task only, in the order of the server. The reader keeps no objects.
"""

from __future__ import annotations

import random as randomness
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import structlog

from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.errors import (
    ApiError,
    Gone,
    KubeError,
    MalformedResponse,
    NotConnected,
    StreamBroken,
    TooManyRequests,
    TransportError,
)
from trainmaster.controller.kube.pacing import Backoff, Random
from trainmaster.controller.kube.resources import Resource
from trainmaster.controller.kube.storing import object_key
from trainmaster.controller.kube.watching import WatchEvent, WatchStream
from trainmaster.metrics.informer import InformerMetrics, Snapshot
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

PAGE_SIZE: Final = 500
_TIMEOUT_RANGE: Final = (300.0, 600.0)
_SHORT_WATCH: Final = 1.0
_RETRY_AFTER_AT_MOST: Final = 60.0
_EVENTS_PER_TURN: Final = 100
"""After so many events without a pause other tasks get a turn (P-35)."""

_END_OF_SNAPSHOT: Final = "k8s.io/initial-events-end"


class ListWatcher(Protocol):
    """What the reader needs of a client."""

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
    ) -> JsonObject:
        """Read a collection, or one page of it."""

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: float,
        bookmarks: bool = True,
        send_initial_events: bool = False,
    ) -> AbstractAsyncContextManager[WatchStream]:
        """Open a watch."""


class Sink(Protocol):
    """Who gets what the reader reads."""

    def prepare(self, obj: JsonObject) -> JsonObject:
        """Trim an object of a snapshot before it is held in memory."""

    async def replace(self, objects: list[JsonObject], resource_version: str) -> None:
        """Take a complete snapshot, made of prepared objects."""

    def receive(self, event: WatchEvent, resource_version: str) -> None:
        """Take an ADDED, MODIFIED or DELETED event."""

    def advance(self, resource_version: str) -> None:
        """Take a bookmark: nothing changed up to this version."""


class Reflector:
    """Reads one collection into a sink."""

    def __init__(
        self,
        client: ListWatcher,
        resource: Resource,
        sink: Sink,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        clock: Clock | None = None,
        random: Random = randomness.random,
        metrics: InformerMetrics | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._sink = sink
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._clock = clock or SystemClock()
        self._random = random
        self._metrics = metrics or InformerMetrics(resource.name)
        self._backoff = Backoff(clock=self._clock, random=random)
        self._version = ""
        self._version_unusable = False
        self._trouble: object = None
        self._log = log.bind(resource=resource.name, **({"namespace": namespace} if namespace else {}))

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                await self._snapshot_and_watch()
            except KubeError as error:
                await self._pause(error)

    async def _snapshot_and_watch(self) -> None:
        """Take a snapshot and follow it until something requires another one."""
        if not await self._stream_snapshot():
            await self._list_snapshot()
        while True:
            await self._watch_once()

    # Snapshots

    async def _stream_snapshot(self) -> bool:
        """Take a snapshot by a streaming list and follow its stream; False if this way gave no snapshot."""
        complete = False
        try:
            async with self._watch("" if self._version_unusable else self._version, send_initial_events=True) as stream:
                events = aiter(stream)
                await self._accept("streaming", *await self._collect(events))
                complete = True
                await self._follow(events)
        except (NotConnected, TooManyRequests):
            # A list request would fare no better.
            raise
        except KubeError as error:
            # After the snapshot, a broken stream is the affair of the watch, and any other error of the caller.
            if complete and not isinstance(error, TransportError):
                raise
            self._log.debug("streaming list failed", error=str(error), complete=complete)
        return complete

    async def _collect(self, events: AsyncIterator[WatchEvent]) -> tuple[list[JsonObject], str]:
        """Gather the initial events up to the bookmark that ends them; their versions mean no progress (R-7)."""
        objects: dict[str, JsonObject] = {}
        count = 0
        async for event in events:
            if event.type == "BOOKMARK":
                annotations = event.object.get("metadata", {}).get("annotations") or {}
                if annotations.get(_END_OF_SNAPSHOT) == "true":
                    return list(objects.values()), _version_of(event.object)
                continue
            if not self._is_ours(event.object):
                continue
            if event.type == "DELETED":
                objects.pop(object_key(event.object), None)
            else:
                objects[object_key(event.object)] = self._sink.prepare(event.object)
            count += 1
            if count % _EVENTS_PER_TURN == 0:
                await self._clock.sleep(0)
        raise StreamBroken(f"the streaming list of {self._resource.name} ended before its snapshot was complete")

    async def _list_snapshot(self) -> None:
        """Take a snapshot by list requests."""
        try:
            snapshot = await self._list("" if self._version_unusable else self._version or "0")
        except ApiError as error:
            if not (isinstance(error, Gone) or error.resource_version_too_large):
                raise
            self._version_unusable = True
            snapshot = await self._list("")
        await self._accept("list", *snapshot)

    async def _accept(self, method: Snapshot, objects: list[JsonObject], version: str) -> None:
        """Hand a complete snapshot to the sink."""
        await self._sink.replace(objects, version)
        self._version = version
        self._version_unusable = False
        self._metrics.snapshot(method)
        self._recovered()

    async def _list(self, version: str) -> tuple[list[JsonObject], str]:
        """Read the collection at `version`, in pages where the server does not serve it from its cache anyway (R-9)."""
        objects: list[JsonObject] = []
        token: str | None = None
        limit = PAGE_SIZE if version in {"", "0"} else None
        while True:
            try:
                page = await self._page(version, limit=limit, token=token)
            except Gone:
                if token is None:
                    raise
                # The continuation expired while we read; the whole in one answer cannot.
                objects, token, limit = [], None, None
                continue
            items, metadata = page.get("items"), page.get("metadata")
            if not isinstance(metadata, dict) or not (items is None or isinstance(items, list)):
                raise MalformedResponse(
                    f"listing {self._resource.name}: the answer is no list but {page.get('kind')!r}"
                )
            objects += [self._sink.prepare(item) for item in map(self._typed, items or ()) if self._is_ours(item)]
            token = metadata.get("continue") or None
            if token is None:
                return objects, _version_of(page)
            await self._clock.sleep(0)

    async def _page(self, version: str, *, limit: int | None, token: str | None) -> JsonObject:
        return await self._client.list(
            self._resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=limit,
            continue_token=token,
            # A continuation carries the version of its first page and may not name another.
            resource_version=None if token else version or None,
        )

    # Watches

    async def _watch_once(self) -> None:
        """Follow one watch from the last version to its end."""
        started, version, opened = self._clock.monotonic(), self._version, False
        try:
            async with self._watch(version) as stream:
                opened = True
                self._recovered()
                await self._follow(aiter(stream))
        except TransportError as error:
            if not opened:
                await self._pause(error)
                return
            self._log.debug("watch broke", error=str(error))
        except TooManyRequests as error:
            await self._pause(error)
            return
        # Progress is the measure, not events: a bookmark that repeats must not keep this loop spinning either.
        if self._version == version and self._clock.monotonic() - started < _SHORT_WATCH:
            raise StreamBroken(f"the watch of {self._resource.name} ended at once without an event")

    async def _follow(self, events: AsyncIterator[WatchEvent]) -> None:
        """Hand events to the sink until the stream ends."""
        count = 0
        async for event in events:
            self._metrics.event()
            version = _version_of(event.object)
            if event.type == "BOOKMARK":
                self._sink.advance(version)
                self._version = version
            elif self._is_ours(event.object):
                self._sink.receive(event, version)
                self._version = version
            count += 1
            if count % _EVENTS_PER_TURN == 0:
                await self._clock.sleep(0)

    def _watch(self, version: str, *, send_initial_events: bool = False) -> AbstractAsyncContextManager[WatchStream]:
        shortest, longest = _TIMEOUT_RANGE
        self._metrics.watching()
        return self._client.watch(
            self._resource,
            namespace=self._namespace,
            resource_version=version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_seconds=shortest + (longest - shortest) * self._random(),
            send_initial_events=send_initial_events,
        )

    # Details

    def _typed(self, item: object) -> JsonObject:
        """Give an item of a list the type that only the list states."""
        if not isinstance(item, dict):
            raise MalformedResponse(f"listing {self._resource.name}: an item is not an object")
        item.setdefault("apiVersion", self._resource.api_version)
        item.setdefault("kind", self._resource.kind)
        return item

    def _is_ours(self, obj: JsonObject) -> bool:
        """Whether an object is one of those we asked for; others are skipped, and stop nothing (R-29)."""
        metadata = obj.get("metadata")
        if obj.get("kind") == self._resource.kind and isinstance(metadata, dict) and metadata.get("name"):
            return True
        self._log.warning("object of another kind skipped", kind=str(obj.get("kind"))[:100])
        return False

    async def _pause(self, error: KubeError) -> None:
        """Wait after a failure; log it only if it is another one than before."""
        delay = self._backoff.next_delay()
        if isinstance(error, ApiError) and error.retry_after is not None:
            delay = max(delay, min(error.retry_after, _RETRY_AFTER_AT_MOST))
        self._metrics.failed()
        trouble = (type(error), getattr(error, "status", None))
        write = self._log.debug if trouble == self._trouble else self._log.warning
        self._trouble = trouble
        write("collection cannot be read, trying again", error=str(error), delay=round(delay, 2))
        await self._clock.sleep(delay)

    def _recovered(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            self._log.info("collection can be read again")


def _version_of(obj: JsonObject) -> str:
    """Return the resource version of an object or a list; without one there is no way to go on."""
    metadata = obj.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise MalformedResponse(f"a {str(obj.get('kind'))[:100]} without metadata.resourceVersion")
    return version
