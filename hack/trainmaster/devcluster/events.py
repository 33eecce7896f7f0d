"""Events: what controllers and the kubelet tell users, written in the core/v1 form that every client understands.

- The same fact about the same object is one Event whose count grows; the end of its name is derived from the fact, so
  this also holds after a restart.
- Events about an object are listed in the order in which they were recorded, as those of a real cluster are by their
  names: their times have whole seconds, and kubectl sorts by nothing else.
- Recording is best effort: an Event that cannot be written (its namespace goes away, say) is logged and forgotten.
- A controller waits until its Event is written (`EventRecorder`); the kubelet has them written in the background
  (`EventBroadcaster`), so that no pod waits for them.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Literal

import structlog

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic.api import Api
from trainmaster.devcluster.apiserver.registry.options import WriteOptions
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import EVENTS
from trainmaster.runtime.jsontree import JsonObject

_NAME_LIMIT = 253
_NOTE_LIMIT = 1024  # the API refuses longer messages

_QUEUE_LIMIT = 10_000
_REMEMBERED = 10_000
_DIGEST = 16

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """A fact about an object, not yet recorded."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    field_path: str = ""
    """The part of the object that is meant."""


class EventRecorder:
    """Writes Events in the name of one component."""

    def __init__(self, api: Api, component: str) -> None:
        self._api = api
        self._component = component
        self._names: dict[str, str] | None = None
        """Names of events by the digest of their fact; read from the API when the first one is recorded."""

    async def record(self, regarding: JsonObject, note: Note, *, action: str | None = None) -> None:
        """Write the Event, or count it up if the fact is known; never raises because of the API's answer."""
        try:
            await self._record(regarding, note, action)
        except StatusError as error:
            _log.debug(
                "event not recorded", reason=note.reason, regarding=regarding["metadata"]["name"], error=str(error)
            )

    async def _record(self, regarding: JsonObject, note: Note, action: str | None) -> None:
        metadata = regarding["metadata"]
        namespace = metadata.get("namespace", "default")
        message = note.message.encode()[:_NOTE_LIMIT].decode(errors="ignore")
        fact = "\0".join(
            [metadata["uid"], note.type, note.reason, message, self._component, *filter(None, [note.field_path])]
        )
        digest = hashlib.sha256(fact.encode()).hexdigest()[:_DIGEST]
        now = timestamp(self._api.clock())
        options = WriteOptions(field_manager=self._component)
        known = self._find(namespace, digest)
        if known is not None:
            counted = {**known, "count": known.get("count", 1) + 1, "lastTimestamp": now}
            await self._api.update(EVENTS, counted, options=options)
            return
        suffix = f".{self._api.store.revision:012x}{digest}"
        name = metadata["name"][: _NAME_LIMIT - len(suffix)] + suffix
        event: JsonObject = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
                **({"namespace": metadata["namespace"]} if "namespace" in metadata else {}),
                **({"fieldPath": note.field_path} if note.field_path else {}),
            },
            "type": note.type,
            "reason": note.reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            **({"action": action} if action else {}),
        }
        await self._api.create(EVENTS, event, options=options)
        self._remember(name)

    def _find(self, namespace: str, digest: str) -> JsonObject | None:
        """Find the Event of a fact; None if there is none, or none any more."""
        if self._names is None:
            self._names = {}
            for record in self._api.list(EVENTS)[0]:
                self._remember(record.object["metadata"]["name"])
        name = self._names.get(digest)
        try:
            return None if name is None else self._api.get(EVENTS, namespace, name)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    def _remember(self, name: str) -> None:
        if self._names is not None:
            self._names[name[-_DIGEST:]] = name
            if len(self._names) > _REMEMBERED:
                del self._names[next(iter(self._names))]


class EventBroadcaster:
    """Queues the Events of one component and writes them while it runs; a full queue drops what comes."""

    def __init__(self, api: Api, component: str) -> None:
        self._recorder = EventRecorder(api, component)
        self._queue: asyncio.Queue[tuple[JsonObject, Note]] = asyncio.Queue(_QUEUE_LIMIT)

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            regarding, note = await self._queue.get()
            await self._recorder.record(regarding, note)

    def normal(self, regarding: JsonObject, reason: str, message: str, *, field_path: str = "") -> None:
        """Queue an Event about something expected."""
        self._put(regarding, Note("Normal", reason, message, field_path))

    def warning(self, regarding: JsonObject, reason: str, message: str, *, field_path: str = "") -> None:
        """Queue an Event about something that somebody may have to look at."""
        self._put(regarding, Note("Warning", reason, message, field_path))

    def _put(self, regarding: JsonObject, note: Note) -> None:
        if not self._queue.full():
            self._queue.put_nowait((regarding, note))
