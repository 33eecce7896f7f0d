"""Events: what users see in `kubectl describe`.

Guarantees:
- F-8: best effort. `event` never waits and never fails; when the queue is full, events are dropped and counted in a log
  line. A write that may succeed later is tried again, `TRIES` times at most, without holding up the others.
- F-6, F-7: `EventCorrelator` decides what is a new event, what counts up an earlier one, and what is too much. The
  first repeat of an event is written at once, further ones every `REFRESH_TIME` while they come, and the last count
  when none has come for `FINISH_TIME`. An event has ended then: the next one is new.
- Notes and names keep within the limits of the API, cut between characters.
- `flush` writes what waits, for a stop.

`run` owns the requests; `event` may be called from any code of the event loop.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Final, Literal, Protocol, TypedDict, Unpack

import structlog

from trainmaster.controller.kube.clock import Clock, SystemClock, micro_time
from trainmaster.controller.kube.events.correlator import FINISH_TIME, EventCorrelator, EventKey, Series
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    AlreadyExists,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
)
from trainmaster.controller.kube.rest.resources import EVENTS
from trainmaster.controller.redaction import redact
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

QUEUE_LIMIT: Final = 1000
REFRESH_TIME: Final = 1800.0
"""Seconds between two writes of one series; repeats in between are counted here."""

TRIES: Final = 12
TRY_INTERVAL: Final = 10.0
_SWEEP_INTERVAL: Final = 60.0

_PASSING: Final = (TransportError, ServerError, TooManyRequests)

_NOTE_BYTES: Final = 1024
_REASON_BYTES: Final = 128
_INSTANCE_BYTES: Final = 128
_NAME_BYTES: Final = 200


class EventFields(TypedDict):
    """What an event says, under the names that the fields have in the API."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


class Recorder(Protocol):
    """Whom a controller tells what happens."""

    def event(self, regarding: JsonObject, **fields: Unpack[EventFields]) -> None:
        """Record an event about an object."""


class EventRecorder:
    """Records events about objects."""

    def __init__(
        self,
        client: KubeClient,
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
        self._queue: asyncio.Queue[Series] = asyncio.Queue(QUEUE_LIMIT)
        self._correlator = EventCorrelator(self._clock)
        self._dropped = 0
        self._flushing = False

    def event(
        self, regarding: JsonObject, *, reporting_controller: str | None = None, **fields: Unpack[EventFields]
    ) -> None:
        """Record an event about an object; `reporting_controller` is who says so, by default who this recorder is."""
        metadata = regarding.get("metadata", {})
        controller = reporting_controller or self._controller
        key = EventKey(
            metadata.get("uid", ""), metadata.get("name", ""), fields["type"], fields["reason"], fields["action"]
        )
        note = cut(redact(fields["note"]), _NOTE_BYTES)
        series = self._correlator.correlate(key, note, lambda note: self._body(regarding, key, note, controller))
        if series is None:
            log.debug("an event is not recorded, the object has too many", object=key.name, reason=key.reason)
        elif series.count <= 2:  # the first, and the repeat that shows users that it is a series
            self._enqueue(series)

    async def run(self) -> None:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_all())
            tasks.create_task(self._sweep())

    async def flush(self, seconds: float) -> None:
        """Write everything that was recorded, counts included, within `seconds`; what is left then is lost."""
        self._flushing = True
        for series in self._correlator:
            if series.count > series.written:
                self._enqueue(series)
        try:
            async with self._clock.timeout(seconds):
                while not self._queue.empty():
                    await self._write_next()
                await self._queue.join()  # what `run` has taken
        except TimeoutError:
            lost = sum(series.count > series.written for series in self._correlator)
            log.warning("events were not recorded before the end", lost=lost)
        finally:
            self._flushing = False

    def _enqueue(self, series: Series) -> None:
        if series.queued:
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
            await self._write_next()

    async def _write_next(self) -> None:
        series = await self._queue.get()
        try:
            if self._dropped and self._queue.empty():
                log.warning("events were dropped", dropped=self._dropped)
                self._dropped = 0
            # Nothing may be new: a repeat may have been written while a retry of the first was waiting.
            written = series.count > series.written and await self._try(series)
        finally:
            # Only now: while it is being written nobody else may write it, `flush` in particular.
            series.queued = False
            self._queue.task_done()
        if written and series.count > series.written and (series.count <= 2 or self._flushing):
            self._enqueue(series)  # it was repeated meanwhile

    async def _try(self, series: Series) -> bool:
        """Write what is new of a series; tells whether that went well."""
        written = False
        try:
            await self._write(series)
            written = True
        except _PASSING as error:
            series.tries += 1
            if series.tries < TRIES:
                log.debug("event was not recorded, trying again", reason=series.body["reason"], error=str(error))
                self._clock.call_at(self._clock.monotonic() + TRY_INTERVAL, lambda: self._enqueue(series))
                return False
            log.warning("event was not recorded", reason=series.body["reason"], tries=TRIES, error=str(error))
        except KubeError as error:
            # Forbidden stays wrong until someone grants the permission, so it is worth a line; the rest passes.
            write = log.warning if isinstance(error, Forbidden) and not error.told else log.debug
            write("event was not recorded", reason=series.body["reason"], error=str(error))
        series.tries, series.tried_at = 0, self._clock.monotonic()
        return written

    async def _sweep(self) -> None:
        """Write what was only counted so far, when it is due or has ended, and forget what has ended."""
        while True:
            await self._clock.sleep(_SWEEP_INTERVAL)
            moment = self._clock.monotonic()
            for series in self._correlator:
                due = moment - series.tried_at >= REFRESH_TIME or moment - series.last_seen > FINISH_TIME
                if due and series.count > series.written:
                    self._enqueue(series)
            self._correlator.drop_finished()

    async def _write(self, series: Series) -> None:
        count, last, body = series.count, series.last, series.body
        repeats = {"series": {"count": count, "lastObservedTime": micro_time(last)}} if count > 1 else {}
        metadata = body["metadata"]
        if series.written:
            try:
                await self._client.patch(EVENTS, metadata["namespace"], metadata["name"], repeats)
            except NotFound:
                # The server drops events after an hour; this one goes on under a new name.
                metadata = {**metadata, "name": f"{metadata['name'].rpartition('.')[0]}.{self._new_id()}"}
                series.body = {**body, "metadata": metadata}
                await self._client.create(EVENTS, {**series.body, **repeats})
        else:
            try:
                await self._client.create(EVENTS, {**body, **repeats})
            except AlreadyExists:
                # An earlier try arrived although its answer did not; the name tells that it is ours.
                if repeats:
                    await self._client.patch(EVENTS, metadata["namespace"], metadata["name"], repeats)
        series.written = count

    def _body(self, regarding: JsonObject, key: EventKey, note: str, controller: str) -> JsonObject:
        metadata = regarding.get("metadata", {})
        # Events about objects without a namespace live in the default one.
        namespace = metadata.get("namespace") or "default"
        reference = {name: regarding.get(name) for name in ("apiVersion", "kind")} | {
            name: metadata.get(name) for name in ("namespace", "name", "uid", "resourceVersion")
        }
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{cut(key.name, _NAME_BYTES)}.{self._new_id()}", "namespace": namespace},
            "eventTime": micro_time(self._clock.now()),
            "type": key.type,
            "reason": cut(key.reason, _REASON_BYTES),
            "action": cut(key.action, _REASON_BYTES),
            "note": cut(note, _NOTE_BYTES),
            "regarding": {name: value for name, value in reference.items() if value},
            "reportingController": controller,
            "reportingInstance": self._instance,
        }


class ControllerRecorder:
    """Records events in the name of one of several controllers."""

    def __init__(self, recorder: EventRecorder, reporting_controller: str) -> None:
        self._recorder = recorder
        self._controller = reporting_controller

    def event(self, regarding: JsonObject, **fields: Unpack[EventFields]) -> None:
        """Record an event about an object."""
        self._recorder.event(regarding, reporting_controller=self._controller, **fields)


def cut(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes of UTF-8, between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= limit else encoded[: limit - 3].decode("utf-8", "ignore") + "..."
