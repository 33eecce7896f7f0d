"""Events: what users see in `kubectl describe`.

Guarantees:
- F-8: best effort. `event` never waits and never fails; when the queue is full, events are dropped and counted in a log
  line.
- F-7: a repeat (same object, type, reason, action and note) does not make a new event but counts up the series of the
  first; from its second write on a series is written at most once per `SERIES_PERIOD`, and it is forgotten after
  `SERIES_QUIET` without a repeat.
- Notes and names keep within the limits of the API, cut between characters.

`run` owns the requests; `event` may be called from any code of the event loop.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple, Protocol

import structlog

from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound
from trainmaster.controller.kube.resources import EVENTS, Resource
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

QUEUE_LIMIT: Final = 1000
SERIES_LIMIT: Final = 4096
SERIES_PERIOD: Final = 60.0
"""Seconds between two writes of one series; repeats in between are counted here."""
SERIES_QUIET: Final = 360.0
"""Seconds without a repeat after which the next one starts a new event (F-7)."""

_NOTE_BYTES: Final = 1024
_REASON_BYTES: Final = 128
_INSTANCE_BYTES: Final = 128
_NAME_BYTES: Final = 200


class EventClient(Protocol):
    """What the recorder needs of a client."""

    async def create(
        self, resource: Resource, obj: JsonObject, *, namespace: str | None = None, field_manager: str | None = None
    ) -> JsonObject:
        """Create an object."""

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: object) -> JsonObject:
        """Patch an object."""


class _Key(NamedTuple):
    """What makes two events the same."""

    uid: str
    name: str
    type: str
    reason: str
    action: str
    note: str


@dataclass(slots=True, eq=False)
class _Series:
    """One event and its repeats."""

    body: JsonObject
    count: int
    last: datetime
    last_seen: float
    tried_at: float | None = None
    written_count: int = 0
    queued: bool = False


class EventRecorder:
    """Records events about objects."""

    def __init__(
        self,
        client: EventClient,
        *,
        reporting_controller: str,
        reporting_instance: str,
        clock: Clock | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:16],
    ) -> None:
        self._client = client
        self._controller = reporting_controller
        self._instance = cut(reporting_instance, _INSTANCE_BYTES)
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(QUEUE_LIMIT)
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._dropped = 0

    def event(
        self,
        regarding: JsonObject,
        *,
        type: Literal["Normal", "Warning"],  # noqa: A002 - the name of the field in the API
        reason: str,
        action: str,
        note: str,
    ) -> None:
        """Record an event about an object."""
        metadata = regarding.get("metadata", {})
        note = cut(note, _NOTE_BYTES)
        key = _Key(metadata.get("uid", ""), metadata.get("name", ""), type, reason, action, note)
        now, moment = self._clock.now(), self._clock.monotonic()
        series = self._series.get(key)
        if series is None or moment - series.last_seen > SERIES_QUIET:
            series = _Series(self._body(regarding, key, now), 0, now, moment)
            self._series[key] = series
        series.count += 1
        series.last = now
        series.last_seen = moment
        self._series.move_to_end(key)
        while len(self._series) > SERIES_LIMIT:
            self._series.popitem(last=False)
        self._enqueue(series)

    async def run(self) -> None:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_all())
            tasks.create_task(self._sweep())

    def _enqueue(self, series: _Series) -> None:
        due = series.tried_at is None or self._clock.monotonic() - series.tried_at >= SERIES_PERIOD
        # The first repeat is written at once, so that users see that it is a series.
        if series.queued or not (due or series.written_count == 1):
            return
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            if self._dropped == 0:
                log.warning("events are dropped, the queue is full", limit=QUEUE_LIMIT)
            self._dropped += 1
            return
        series.queued = True

    async def _write_all(self) -> None:
        while True:
            series = await self._queue.get()
            series.queued = False
            if self._dropped and self._queue.empty():
                log.warning("events were dropped", dropped=self._dropped)
                self._dropped = 0
            try:
                await self._write(series)
            except KubeError as error:
                # Forbidden stays wrong until someone grants the permission, so it is worth a line; the rest passes.
                write = log.warning if isinstance(error, Forbidden) else log.debug
                write("event was not recorded", reason=series.body["reason"], error=str(error))

    async def _sweep(self) -> None:
        """Write what was only counted so far or could not be written, and forget what is quiet."""
        while True:
            await self._clock.sleep(SERIES_PERIOD)
            now = self._clock.monotonic()
            for key, series in list(self._series.items()):
                if series.count > series.written_count:
                    self._enqueue(series)
                if now - series.last_seen > SERIES_QUIET:
                    del self._series[key]

    async def _write(self, series: _Series) -> None:
        count, last, body = series.count, series.last, series.body
        repeats = {"series": {"count": count, "lastObservedTime": micro_time(last)}} if count > 1 else {}
        metadata = body["metadata"]
        series.tried_at = self._clock.monotonic()
        if series.written_count:
            try:
                await self._client.patch(EVENTS, metadata["namespace"], metadata["name"], repeats)
            except NotFound:
                # The server drops events after an hour; this one goes on under a new name.
                metadata = {**metadata, "name": f"{metadata['name'].rpartition('.')[0]}.{self._new_id()}"}
                series.body = {**body, "metadata": metadata}
                await self._client.create(EVENTS, {**series.body, **repeats})
        else:
            # An earlier try may have arrived although its answer did not; the name tells that it is ours.
            with suppress(AlreadyExists):
                await self._client.create(EVENTS, {**body, **repeats})
        series.written_count = count

    def _body(self, regarding: JsonObject, key: _Key, now: datetime) -> JsonObject:
        metadata = regarding.get("metadata", {})
        # Events about objects without a namespace live in the default one.
        namespace = metadata.get("namespace") or "default"
        reference = {
            "apiVersion": regarding.get("apiVersion"),
            "kind": regarding.get("kind"),
            "namespace": metadata.get("namespace"),
            "name": metadata.get("name"),
            "uid": metadata.get("uid"),
            "resourceVersion": metadata.get("resourceVersion"),
        }
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{cut(key.name, _NAME_BYTES)}.{self._new_id()}", "namespace": namespace},
            "eventTime": micro_time(now),
            "type": key.type,
            "reason": cut(key.reason, _REASON_BYTES),
            "action": cut(key.action, _REASON_BYTES),
            "note": key.note,
            "regarding": {name: value for name, value in reference.items() if value},
            "reportingController": self._controller,
            "reportingInstance": self._instance,
        }


def cut(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes of UTF-8, between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= limit else encoded[: limit - 3].decode("utf-8", "ignore") + "..."


def micro_time(moment: datetime) -> str:
    """Write a time as the API's MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
