"""A shared, always current copy of one collection, and the event handlers that get its changes.

Guarantees:
- S-1, S-5: every event is delivered, in the order of the server; of one object the handlers see a part of its states,
  each at most once, and in their order.
- S-2, S-6: the store and its indexes have changed before any handler is called.
- S-3, R-30: what vanished while we were not watching is a deletion whose final state is unknown, with the last state we
  saw; a deletion that we saw brings the last state there was.
- S-4: an object that was deleted and created again under one name may arrive as one update, as everywhere in
  Kubernetes: handlers that care compare UIDs.
- S-10: handlers are called one after the other, in the order in which they were added; one that raises is logged and
  does not keep the change from the others. There are no buffers: only the changes of a snapshot wait, and are counted.
- S-11: a handler that is added late gets everything in the store as additions, then of changes; nothing twice,
  nothing missed.
- S-12, S-13: `has_synced` means that the first snapshot was delivered to the handlers; until then additions are
  `initial`, and so are those that a late handler is given at once.
- S-14: handlers that want it get a resync of every object about every ten hours, without a request.
- S-15: what a new snapshot did not change is not delivered.
- S-16, S-17: the transform runs once for each object before it is stored; by default it drops `managedFields`.
- What cannot be read of a collection is kept by its metadata, says so, is counted and named: the rest goes on.
- S-18: with `metadata_only` neither the server nor the store is burdened with more.
- E-7: a server that is away, a kind that does not exist yet, a permission that is missing: all are waited for, and
  `failure` says which it is. An optional kind that the server refuses counts as ready meanwhile.
- P-10: there is one task for a collection, however many objects it has; of named namespaces one for each.
- Namespaces that are read for themselves share the store, the handlers and the metrics. Of one object everything said
  above holds; of two namespaces nothing is said about which comes first.
- P-35: other tasks run while a snapshot is taken, stored and delivered.

Handlers are synchronous and quick: they put keys into queues.
"""

from __future__ import annotations

import asyncio
import random as randomness
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from trainmaster.controller.kube.cache.backoff import YieldBudget
from trainmaster.controller.kube.cache.delta import Delta, Entry, ResourceEventHandler
from trainmaster.controller.kube.cache.listwatch import Collection, ListWatcher
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.cache.reflector import Reflector
from trainmaster.controller.kube.cache.store import Store, kept, object_key
from trainmaster.controller.kube.clock import Clock, Random, SystemClock
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.rest.watch import WatchEvent
from trainmaster.metrics.cache import InformerMetrics
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

log = structlog.get_logger(__name__)

RESYNC_PERIOD: Final = 36_000.0
"""Seconds; ten hours, as in controller-runtime, and like there 10 % more or less."""

_DELIVERY_INTERVAL: Final = 1.0

Transform: TypeAlias = Callable[[JsonObject], JsonObject]
"""Trims an object before it is stored; it may change the one it is given, which nobody else has yet."""


def strip_managed_fields(obj: JsonObject) -> JsonObject:
    """Drop the record of who set which field: half of an object, and of no use to a reader (S-17)."""
    obj["metadata"].pop("managedFields", None)
    return obj


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerOptions:
    """What an informer reads, and how it treats that.

    Attributes:
        namespaces: Of which namespaces, if the kind has any, each read for itself; empty: all at once.
        label_selector: Which objects; the others cost neither traffic nor memory (S-19).
        metadata_only: Whether metadata is enough.
        optional: Whether it is nothing special if the server does not serve the kind.
        absent_if_denied: Whether it counts as not served, too, while we may not read it and never could.
        name: The name in metrics and logs; that of the resource, unless another informer has that.
        start_after: What a namespace has to wait for before it is read.
    """

    namespaces: Sequence[str] = ()
    label_selector: str | None = None
    field_selector: str | None = None
    metadata_only: bool = False
    optional: bool = False
    absent_if_denied: bool = False
    transform: Transform = strip_managed_fields
    name: str | None = None
    start_after: Callable[[str], Awaitable[object]] | None = None
    resync_period: float = RESYNC_PERIOD


@dataclass(slots=True, eq=False)
class _Registration:
    handler: ResourceEventHandler
    resync: bool
    removed: bool = False


class Informer:
    """One collection, read once and shared by everyone in the process: the `ReflectorStore` of its reflectors.

    Args:
        outages: Why this and other informers cannot read at present; by default those of this one alone.
        on_state_change: Called when something has synced, or cannot be read any more, or can again.
    """

    def __init__(
        self,
        client: ListWatcher,
        resource: Resource,
        options: InformerOptions = InformerOptions(),
        *,
        outages: Outages | None = None,
        on_state_change: Callable[[Informer], object] = lambda _: None,
        clock: Clock | None = None,
        random: Random = randomness.random,
    ) -> None:
        self.resource = resource
        self.name = options.name or resource.name
        self.store = Store(on_unreadable=self._on_unreadable)
        self._options = options
        self._on_state_change = on_state_change
        self._clock = clock or SystemClock()
        self._random = random
        self._metrics = InformerMetrics(self.name)
        self._registrations: list[_Registration] = []
        self._resync_wanted = asyncio.Event()
        self._synced = asyncio.Event()
        self._ready = asyncio.Event()
        self._undelivered: Counter[str | None] = Counter()
        """Changes of a snapshot that event handlers have not heard of yet, by namespace."""

        self._unreadable: dict[str, tuple[object, object]] = {}
        """UID and version of the objects of which only the metadata could be read, by key."""

        self._log = log.bind(resource=self.name)
        outages = outages or Outages(clock=self._clock)
        self.reflectors: Mapping[str | None, Reflector] = {
            namespace: Reflector(
                client,
                Collection(
                    resource=resource,
                    namespace=namespace,
                    label_selector=options.label_selector,
                    field_selector=options.field_selector,
                    metadata_only=options.metadata_only,
                ),
                self,
                outages=outages,
                optional=options.optional,
                absent_if_denied=options.absent_if_denied,
                clock=self._clock,
                random=random,
                metrics=self._metrics,
            )
            for namespace in (resource.namespaced and options.namespaces) or (None,)
        }
        """What reads each namespace, or, under None, the whole."""

        _measure(self._metrics, self.store, self.reflectors.values())

    @property
    def has_synced(self) -> bool:
        """Whether the first snapshot was delivered to the handlers, that of each namespace."""
        return self._synced.is_set()

    @property
    def is_ready(self) -> bool:
        """Whether nobody needs to wait: it has synced, or is optional and the server does not serve it to us."""
        return self._ready.is_set()

    @property
    def failure(self) -> str | None:
        """Why the collection cannot be read at present, and what to do about it; of several namespaces the first."""
        failures = [each.failure for each in self.reflectors.values() if each.failure is not None]
        if not failures:
            return None
        more = f"; so it is in {len(failures) - 1} more namespaces" if len(failures) > 1 else ""
        return f"{failures[0].text}{more}"

    def state(self) -> JsonObject:
        """Return how it is, for people."""
        return {
            "name": self.name,
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "optional": self._options.optional,
            "synced": self.has_synced,
            "ready": self.is_ready,
            "failure": self.failure,
            "objects": len(self.store),
            "bytes": self.store.total_size,
            "resourceVersion": str(self.store.resource_version),
            "undelivered": self._undelivered.total(),
            "unreadable": len(self._unreadable),
        }

    async def wait_synced(self) -> None:
        """Wait until the first snapshot was delivered to the handlers."""
        await self._synced.wait()

    async def wait_ready(self) -> None:
        """Wait until nobody needs to wait."""
        await self._ready.wait()

    async def run(self) -> None:
        """Keep the store current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for namespace, reflector in self.reflectors.items():
                tasks.create_task(self._read(namespace, reflector), name=f"reflector-{self.resource.name}")
            tasks.create_task(self._resync_for_ever(), name=f"resync-{self.resource.name}")

    def add_event_handler(self, handler: ResourceEventHandler, *, resync: bool = False) -> Callable[[], None]:
        """Have a handler called with every delta from now on, what is stored at once; returns what takes it away."""
        registration = _Registration(handler, resync)
        for delta in self.store.initial_deltas():
            delta.initial = True
            self._notify(registration, delta)
        # A new list, not an append: a delivery in progress goes on with the handlers that it started with, because this
        # one has just got the outcome.
        self._registrations = [*self._registrations, registration]
        if resync:
            self._resync_wanted.set()

        def remove() -> None:
            registration.removed = True
            self._registrations = [other for other in self._registrations if other is not registration]

        return remove

    # What the reflectors call

    def to_entry(self, obj: JsonObject) -> Entry:
        """Trim an object and return what is stored of it."""
        return self.store.entry(self._trim(obj))

    async def replace(self, entries: list[Entry], version: str, *, namespace: str | None, initial: bool) -> None:
        """Take a complete snapshot: the store in one step, then the handlers, with pauses for other tasks."""
        deltas = self.store.replace(entries, resource_version=version, namespace=namespace)
        self._forget_unreadable(list(self._unreadable))
        entries.clear()
        registrations, budget = self._registrations, YieldBudget()
        # From the end, so that each delta is let go once it is delivered, with the trees that handlers had decoded.
        deltas.reverse()
        while deltas:
            started, delta = self._clock.monotonic(), deltas.pop()
            self._undelivered[namespace] = len(deltas)
            delta.initial = initial and delta.is_addition
            delta.final_state_unknown = delta.is_deletion
            for registration in registrations:
                self._notify(registration, delta)
            if budget.spent(delta.size, self._clock.monotonic() - started):
                self._metrics.undelivered.set(self._undelivered.total())
                # Nothing can overtake the rest: the reflector, which alone brings changes of it, waits for us.
                await self._clock.sleep(0)
        self._undelivered[namespace] = 0
        self._metrics.undelivered.set(self._undelivered.total())

    def handle_event(self, event: WatchEvent, version: str, *, namespace: str | None) -> None:
        """Take one event."""
        obj = event.object
        key = object_key(obj)
        delta: Delta | None = None
        if event.type == "DELETED":
            if key in self.store:
                # The last state comes with the event; what we had is older.
                last, _ = kept(self._trim(obj))
                delta = self.store.delete(key, last=last)
        elif not self.store.holds(key, obj):
            delta = self.store.put(self._trim(obj), key=key)
        self.store.update_resource_version(version, namespace)
        if delta is not None:
            self._forget_unreadable([key])
            for registration in self._registrations:
                self._notify(registration, delta)

    def update_resource_version(self, version: str, *, namespace: str | None) -> None:
        """Take a bookmark."""
        self.store.update_resource_version(version, namespace)

    def state_changed(self) -> None:
        """Take note that a reflector has synced, or that its `failure` has changed."""
        reflectors = self.reflectors.values()
        self.store.set_served(not any(each.is_absent for each in reflectors))
        if not self.has_synced and all(each.has_synced for each in reflectors):
            self._synced.set()
            self._log.debug("informer synced", objects=len(self.store))
        if all(each.is_ready for each in reflectors):
            self._ready.set()
        self._on_state_change(self)

    # Details

    async def _read(self, namespace: str | None, reflector: Reflector) -> None:
        if namespace is not None and self._options.start_after is not None:
            await self._options.start_after(namespace)
        await reflector.run()

    def _trim(self, obj: JsonObject) -> JsonObject:
        try:
            return self._options.transform(obj)
        except Exception:
            # Kept whole it costs memory; dropped it would look deleted.
            self._log.exception("transform failed, object kept whole", key=object_key(obj))
            return obj

    def _on_unreadable(self, key: str, obj: JsonObject) -> None:
        """Tell of an object of which only the metadata could be read, once for each of its versions."""
        metadata = obj["metadata"]
        version = metadata.get("uid") or "", metadata.get("resourceVersion") or ""
        if self._unreadable.get(key) != version:
            self._unreadable[key] = version
            self._metrics.unreadable.set(len(self._unreadable))
            reason = why_unreadable(obj)
            self._log.warning("an object cannot be read, only its metadata", key=key, version=version[1], reason=reason)

    def _forget_unreadable(self, keys: Iterable[str]) -> None:
        """Take note of unreadable objects that have gone or can be read now."""
        if self._unreadable:
            for key in keys:
                if self._unreadable.get(key) != (self.store.uid(key), self.store.version(key)):
                    self._unreadable.pop(key, None)
            self._metrics.unreadable.set(len(self._unreadable))

    async def _resync_for_ever(self) -> None:
        await self._resync_wanted.wait()
        await self._synced.wait()
        while True:
            await self._clock.sleep(self._options.resync_period * (0.9 + 0.2 * self._random()))
            await self._resync()

    async def _resync(self) -> None:
        """Call the handlers that want resyncs with everything in the store (S-14)."""
        registrations, budget = [each for each in self._registrations if each.resync], YieldBudget()
        keys = self.store.keys()
        for key in keys:
            # While a snapshot is being delivered, the store is ahead of what the handlers know.
            while self._undelivered.total():
                await self._clock.sleep(_DELIVERY_INTERVAL)
            delta = self.store.resync_delta(key)
            if delta is None:
                continue
            started = self._clock.monotonic()
            for registration in registrations:
                self._notify(registration, delta)
            if budget.spent(delta.size, self._clock.monotonic() - started):
                await self._clock.sleep(0)

    def _notify(self, registration: _Registration, delta: Delta) -> None:
        if registration.removed:
            return
        try:
            registration.handler(delta)
        except Exception:
            self._log.exception("handler failed", key=delta.key)


def _measure(metrics: InformerMetrics, store: Store, reflectors: Iterable[Reflector]) -> None:
    """Let metrics look at a store and at who fills it at each scrape, without keeping them alive."""
    seen, filling = weakref.ref(store), weakref.WeakSet(reflectors)

    def look(attribute: Callable[[Store], float]) -> Callable[[], float]:
        return lambda: attribute(alive) if (alive := seen()) is not None else 0

    metrics.objects.set_function(look(len))
    metrics.bytes.set_function(look(lambda each: each.total_size))
    metrics.resource_version.set_function(look(lambda each: each.resource_version))
    metrics.synced.set_function(lambda: not any(each.is_waited_for for each in filling))
    metrics.age.set_function(lambda: max((each.age for each in filling), default=0.0))
