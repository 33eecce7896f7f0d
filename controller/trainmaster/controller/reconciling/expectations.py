"""What a reconcile has written, and so when its key is looked at again: expectations, and echoes of one's own writes.

A cache lags behind the server, so a reconcile right after a write may see the world as it was before, and act twice
(C-1). What each key wrote last is expected from the caches (KEP-5647, ControllerExpectations); until they have shown
it, the key waits. Other keys do not. And each write comes back as an event: where a reconcile for it would certainly
find everything as the last one left it, that is an echo, and puts no key into the queue.

Guarantees:
- C-4, C-6: after a write the key waits until the store has reached, for that object, the resource version that the
  write returned, or a later one; that exact version need not be seen, it may have been skipped.
- C-3: after a delete it waits until the cache shows the object gone, on its way out, or replaced by one of another UID.
  No wait lasts longer than `EXPECTATIONS_TIMEOUT`: a missed event delays a key, it does not block it. Nor is a key lost
  with what was written and vanished before any cache saw it, for instance while a watch was away: it is one of those
  that `unobserved` names.
- Of a kind that nobody reads, `WrittenStore` shows at once what was written here, and forgets it after a while: then
  its key is reconciled again, and what was deleted meanwhile is made anew.
- C-5: a version that is no number holds nothing up. Writes of the object itself are forgotten when its UID changes; of
  its children they are not: the successor of a name must see what its predecessor left before it builds the same again.
- An event is an echo only if it shows an object in the very state, by UID and resource version, in which a write left
  it that nothing unseen can hide behind, and if the reconcile that wrote it said at its end that it left nothing to do
  (`EventFilter.expect_echoes`). The first event that is none ends that for its key. An echo fulfils its expectation.
- What comes while a key is reconciled is decided on at the end of that: the queue would hand the key out no earlier,
  and an event may overtake the answer of the write that it tells of.

Nothing is lost when any of this is forgotten: it only ever delays, or saves work. Used from one event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from trainmaster.controller.kube.cache.delta import Version
from trainmaster.controller.kube.cache.store import Store, StoreReader, object_key, parse_resource_version
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

EXPECTATIONS_TIMEOUT: Final = 300.0
"""Seconds after which a write that no cache shows no longer holds its key up, as in the expectations of ReplicaSets."""

UNOBSERVED_AFTER: Final = 30.0
"""Seconds after which a write should have been observed, by far."""

KNOWN_FOR: Final = 300.0
"""Seconds after which what was written of a kind that nobody reads may have been deleted meanwhile."""


class _Expectation(NamedTuple):
    """A write that the caches have to show."""

    is_fulfilled: Callable[[], bool]
    at: float
    owner: str | None
    """The UID of the object that was reconciled, if it is the object that was written."""

    foreseen: Version | None
    """The state in which an event will show it, if nothing that was not seen can be a part of that."""


class WrittenStore(StoreReader):
    """A store that shows what was written here, because nobody reads that from the server."""

    written: UnreadStore


class UnreadStore(Store, WrittenStore):
    """What is known of a kind that nobody reads: the metadata of what was written here within `KNOWN_FOR` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.written = self
        self._remembered: dict[str, tuple[str, float]] = {}

    def remember(self, key: str, written: JsonObject, now: float) -> None:
        """Remember an object that is there, for the reconcile of `key`."""
        name = object_key(written)
        self.put({field: written[field] for field in ("apiVersion", "kind", "metadata")}, key=name)
        self._remembered[name] = key, now

    def forget(self, before: float) -> list[str]:
        """Forget what was remembered before a moment; returns whose it was."""
        old = {name: key for name, (key, at) in self._remembered.items() if at <= before}
        for name in old:
            self.delete(name)
            del self._remembered[name]
        return list(old.values())


class Expectations:
    """What must be observed before a key is reconciled again."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._pending: dict[str, dict[str, _Expectation]] = {}
        self._written: set[UnreadStore] = set()

    def __len__(self) -> int:
        """Count the keys that wait."""
        return len(self._pending)

    def expect_write(
        self, key: str, written: JsonObject, store: StoreReader, *, own: bool = False, foreseen: bool = False
    ) -> None:
        """Expect a cache to show an object that the reconcile of `key` wrote.

        Args:
            own: Whether it is the object of the key itself, not one that belongs to it.
            foreseen: Whether the reconcile knows all that is in it: the server took the write only because there was
                nothing, or the version that was read.
        """
        if isinstance(store, WrittenStore):
            store.written.remember(key, written, self._clock.monotonic())
            self._written.add(store.written)
            return
        metadata = written["metadata"]
        version = parse_resource_version(metadata.get("resourceVersion"))
        if version:
            owner, name = metadata["uid"] if own else None, object_key(written)
            state = (metadata.get("uid") or "", metadata["resourceVersion"]) if foreseen else None
            self._expect(key, written, name, lambda: store.reached(name) >= version, owner=owner, foreseen=state)

    def expect_deletion(self, key: str, obj: JsonObject, store: StoreReader) -> None:
        """Expect a cache to show that `obj`, as it was observed, is deleted: the reconcile of `key` did that."""
        name, uid = object_key(obj), obj["metadata"]["uid"]
        if isinstance(store, WrittenStore):
            store.written.delete(name)
            return

        def is_gone() -> bool:
            if store.uid(name) != uid:
                return True
            found = store.get(name)
            return found is None or bool(found["metadata"].get("deletionTimestamp"))

        self._expect(key, obj, name, is_gone)

    def satisfied(self, key: str, uid: str | None = None) -> bool:
        """Tell whether the caches show all writes of a key, whose object has that UID now; forgets what they show."""
        pending = self._pending.get(key)
        if not pending:
            return True
        now = self._clock.monotonic()
        for what, expectation in list(pending.items()):
            expired = now - expectation.at > EXPECTATIONS_TIMEOUT
            if expired:
                log.warning(
                    "the cache does not show our own write, going on without", object=what, seconds=EXPECTATIONS_TIMEOUT
                )
            replaced = expectation.owner is not None and expectation.owner != uid
            if expired or replaced or expectation.is_fulfilled():
                del pending[what]
        if pending:
            return False
        del self._pending[key]
        return True

    def is_pending(self, key: str) -> bool:
        """Tell whether anything is expected for a key."""
        return key in self._pending

    def all_foreseen(self, key: str) -> bool:
        """Tell whether something is expected for a key, and nothing but what was foreseen."""
        pending = self._pending.get(key)
        return pending is not None and all(each.foreseen is not None for each in pending.values())

    def fulfil(self, key: str, version: Version) -> bool:
        """Take note that a cache shows an object in a state; tells whether that was foreseen for a key."""
        pending = self._pending.get(key, {})
        for what, each in pending.items():
            if each.foreseen == version:
                del pending[what]
                if not pending:
                    del self._pending[key]
                return True
        return False

    def unobserved(self) -> list[str]:
        """Name the keys that were not reconciled again although their last write is a while ago.

        A cache that shows a write has an event for the key, so either the cache lags, or there will never be an event.
        So it is with what nobody reads: it is looked for again, because it may have been deleted.
        """
        now = self._clock.monotonic()
        oldest = now - UNOBSERVED_AFTER
        late = [key for key, pending in self._pending.items() if any(each.at <= oldest for each in pending.values())]
        return [*late, *(key for store in self._written for key in store.forget(now - KNOWN_FOR))]

    def _expect(
        self,
        key: str,
        obj: JsonObject,
        name: str,
        is_fulfilled: Callable[[], bool],
        *,
        owner: str | None = None,
        foreseen: Version | None = None,
    ) -> None:
        # A later write of the same object has a later version, so it replaces the earlier one.
        what = f"{obj['apiVersion']} {obj['kind']} {name}"
        self._pending.setdefault(key, {})[what] = _Expectation(is_fulfilled, self._clock.monotonic(), owner, foreseen)


class EventFilter:
    """Puts keys into a queue because of events, but not because of echoes.

    `on_anew` is called with keys whose next reconcile is to take nothing for known.
    """

    def __init__(
        self, queue: WorkQueue, expectations: Expectations, *, on_anew: Callable[[str], object] = lambda _key: None
    ) -> None:
        self._queue = queue
        self._expectations = expectations
        self._on_anew = on_anew
        self._held: dict[str, dict[Version | None, tuple[bool, int]]] = {}
        """What events have told of each key that is being reconciled: each with `anew` and its priority."""

        self._echoing: set[str] = set()
        """Keys of which echoes are to come."""

    def __len__(self) -> int:
        """Count the keys of which something is remembered."""
        return len(self._held) + len(self._echoing)

    def add(
        self, key: str, version: Version | None, *, anew: bool = False, priority: int = 0, delay: float = 0.0
    ) -> None:
        """Have a key reconciled because of an event, unless that is an echo.

        Args:
            version: The state that an object has come to; None: it is no event that could be an echo.
            anew: Whether the reconcile is to take nothing for known, because of something that it does not look at.
            delay: Seconds that this may wait, for what comes in between to be reconciled together with it.
        """
        held = self._held.get(key)
        if held is not None:
            before = held.get(version, (anew, priority))
            held[version] = (anew or before[0], max(priority, before[1]))
        elif not self._is_echo(key, version):
            self._add(key, anew=anew, priority=priority, delay=delay)

    def begin(self, key: str, uid: str | None = None) -> bool:
        """Begin the reconcile of a key whose object has that UID, unless the caches lack writes of it; returns if so.

        It sees all events until now. Those that follow are held until its `end`.
        """
        self._echoing.discard(key)
        if not self._expectations.satisfied(key, uid):
            return False
        self._held[key] = {}
        return True

    def expect_echoes(self, key: str) -> None:
        """Note that the reconcile of a key leaves nothing to do, as soon as the caches show what it wrote."""
        if self._expectations.all_foreseen(key):
            self._echoing.add(key)

    def end(self, key: str) -> None:
        """End the reconcile of a key; events that were held put it into the queue now, unless they are echoes."""
        for version, (anew, priority) in self._held.pop(key).items():
            if not self._is_echo(key, version):
                self._add(key, anew=anew, priority=priority)

    def _add(self, key: str, *, anew: bool, priority: int, delay: float = 0.0) -> None:
        self._echoing.discard(key)
        if anew:
            self._on_anew(key)
        if delay:
            self._queue.add_after(key, delay, priority=priority)
        else:
            self._queue.add(key, priority=priority)

    def _is_echo(self, key: str, version: Version | None) -> bool:
        if version is None or key not in self._echoing or not self._expectations.fulfil(key, version):
            return False
        if not self._expectations.is_pending(key):
            self._echoing.discard(key)
        return True
