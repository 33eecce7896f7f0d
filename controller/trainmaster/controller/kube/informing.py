"""A shared, always current copy of one collection, and the handlers that hear of its changes.

Guarantees:
- S-2, S-6: the store and its indexes have changed before any handler hears of it.
- S-3: what vanished while we were not watching is deleted with a `Tombstone`, which holds the last state we saw.
- S-4: an object that was deleted and created again under one name may arrive as one update, as everywhere in
  Kubernetes: handlers that care compare UIDs.
- S-10: handlers are called one after the other, in the order in which they were added; one that raises is logged and
  does not keep the change from the others.
- S-11: a handler that is added late hears of everything in the store as additions, then of changes; nothing twice,
  nothing missed.
- S-12, S-13: `has_synced` means that the first snapshot was delivered to the handlers; until then additions are
  `initial`, and so are those that a late handler is given at once.
- S-15: what a new snapshot did not change is not delivered.
- S-16, S-17: the transform runs once for each object before it is stored; by default it drops `managedFields`.
- A server that is away, or a resource type that does not exist yet, is waited for.

Handlers are synchronous and quick: they put keys into queues. They must not change the objects.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import structlog

from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.pacing import Random
from trainmaster.controller.kube.reflecting import ListWatcher, Reflector
from trainmaster.controller.kube.resources import Resource
from trainmaster.controller.kube.storing import Change, Store, object_key, same_version
from trainmaster.controller.kube.watching import WatchEvent
from trainmaster.metrics.informer import InformerMetrics
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

_CHANGES_PER_TURN: Final = 200
"""After so many changes of one snapshot other tasks get a turn (P-35)."""

Transform: TypeAlias = Callable[[JsonObject], JsonObject]
"""Trims an object before it is stored; it may change the one it is given, which nobody else has yet."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deletion that was not seen; `object` is the last state that was, and may be old."""

    key: str
    object: JsonObject


class OnAdd(Protocol):
    """Hears of an object that is new to the store."""

    def __call__(self, obj: JsonObject, initial: bool, /) -> object:
        """`initial` says that it comes from the first snapshot."""


OnUpdate: TypeAlias = Callable[[JsonObject, JsonObject], object]
OnDelete: TypeAlias = Callable[["JsonObject | Tombstone"], object]


@dataclass(slots=True, eq=False)
class _Handler:
    on_add: OnAdd | None
    on_update: OnUpdate | None
    on_delete: OnDelete | None
    removed: bool = False


def strip_managed_fields(obj: JsonObject) -> JsonObject:
    """Drop the record of who set which field: half of an object, and of no use to a reader (S-17)."""
    obj["metadata"].pop("managedFields", None)
    return obj


def final_state(deleted: JsonObject | Tombstone) -> JsonObject:
    """Return the last known state of what a deletion handler was given."""
    return deleted.object if isinstance(deleted, Tombstone) else deleted


class Informer:
    """One collection, read once and shared by everyone in the process."""

    def __init__(
        self,
        client: ListWatcher,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Transform = strip_managed_fields,
        clock: Clock | None = None,
        random: Random = randomness.random,
    ) -> None:
        self.resource = resource
        self.store = Store()
        self._transform = transform
        self._clock = clock or SystemClock()
        self._metrics = InformerMetrics(resource.name)
        self._handlers: list[_Handler] = []
        self._synced = asyncio.Event()
        self._log = log.bind(resource=resource.name)
        self._reflector = Reflector(
            client,
            resource,
            self,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            clock=self._clock,
            random=random,
            metrics=self._metrics,
        )

    @property
    def has_synced(self) -> bool:
        """Whether the first snapshot was delivered to the handlers."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until the first snapshot was delivered to the handlers."""
        await self._synced.wait()

    async def run(self) -> None:
        """Keep the store current until cancelled."""
        await self._reflector.run()

    def add_handler(
        self, *, on_add: OnAdd | None = None, on_update: OnUpdate | None = None, on_delete: OnDelete | None = None
    ) -> Callable[[], None]:
        """Have changes told; returns a function that ends it. What is stored already is told at once, as additions."""
        handler = _Handler(on_add, on_update, on_delete)
        for obj in self.store.list():
            self._tell(handler, Change(object_key(obj), None, obj), initial=True, seen=True)
        # A new list, not an append: a delivery in progress goes on with the handlers that it started with, because this
        # one has just been told the outcome.
        self._handlers = [*self._handlers, handler]

        def remove() -> None:
            handler.removed = True
            self._handlers = [other for other in self._handlers if other is not handler]

        return remove

    # What the reader calls

    def prepare(self, obj: JsonObject) -> JsonObject:
        """Trim an object before it is held in memory."""
        try:
            return self._transform(obj)
        except Exception:
            # Kept whole it costs memory; dropped it would look deleted.
            self._log.exception("transform failed, object kept whole", key=object_key(obj))
            return obj

    async def replace(self, objects: list[JsonObject], resource_version: str) -> None:
        """Take a complete snapshot: the store in one step, then the handlers, with pauses for other tasks."""
        changes = self.store.replace(objects, resource_version=resource_version)
        handlers = self._handlers
        initial = not self.has_synced
        self._stored()
        for number, change in enumerate(changes, start=1):
            for handler in handlers:
                self._tell(handler, change, initial=initial, seen=False)
            if number % _CHANGES_PER_TURN == 0:
                # Nothing can overtake the rest: the reader, which alone brings changes, waits for us.
                await self._clock.sleep(0)
        if initial:
            self._synced.set()
            self._metrics.synced()
            self._log.info("informer synced", objects=len(self.store))

    def receive(self, event: WatchEvent, resource_version: str) -> None:
        """Take one event."""
        obj = self.prepare(event.object)
        key = object_key(obj)
        if event.type == "DELETED":
            change = self.store.remove(key)
            # The last state comes with the event; what we had is older.
            told = Change(key, obj, None) if change.old is not None else None
        elif same_version(self.store.get(key), obj):
            told = None
        else:
            told = self.store.put(obj)
        self.store.advance(resource_version)
        self._stored()
        if told is not None:
            for handler in self._handlers:
                self._tell(handler, told, initial=False, seen=True)

    def advance(self, resource_version: str) -> None:
        """Take a bookmark."""
        self.store.advance(resource_version)
        self._stored()

    def _stored(self) -> None:
        self._metrics.stored(objects=len(self.store), resource_version=self.store.resource_version)

    def _tell(self, handler: _Handler, change: Change, *, initial: bool, seen: bool) -> None:
        """Tell one handler of one change; `seen` says that the server told us of it, rather than a snapshot."""
        if handler.removed:
            return
        old, new = change.old, change.new
        try:
            if new is None:
                if handler.on_delete is not None and old is not None:
                    handler.on_delete(old if seen else Tombstone(change.key, old))
            elif old is None:
                if handler.on_add is not None:
                    handler.on_add(new, initial)
            elif handler.on_update is not None:
                handler.on_update(old, new)
        except Exception:
            self._log.exception("handler failed", key=change.key)
