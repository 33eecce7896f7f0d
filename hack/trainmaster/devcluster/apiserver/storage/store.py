"""The store: objects under compare-and-swap on one global revision.

- Every change gets the next revision; the object carries it as `metadata.resourceVersion`.
- A change is in the journal first, then in memory, then sent to watchers and listeners: these can read it.
- A change that the journal cannot take, because the disk is full, is refused with a StatusError, and nothing changes.
- Listeners are called synchronously, in the order of the revisions, also when a listener itself writes.
  A listener that raises is logged and does not fail the write.
- Each resource remembers its last `history` events; a watch from before them gets `Expired`.
- The store takes ownership of the trees it is given and shares them; it copies only the top level and the metadata.

Besides that refusal the store knows nothing of the Kubernetes API: names, defaults, deletion rules and namespaces are
decided above it.
All methods must be called from one thread, that of the event loop.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.storage.entries import Event, ObjectKey, Record
from trainmaster.devcluster.apiserver.storage.journal import Journal
from trainmaster.devcluster.apiserver.storage.watcher import Expired, Watcher
from trainmaster.runtime.jsontree import JsonObject

HISTORY = 10_000
"""Events remembered for each resource; at ten changes a job this carries a watcher over a thousand jobs."""

Listener: TypeAlias = Callable[[Event], None]
"""A synchronous callback for committed events."""

_log = logging.getLogger(__name__)


class RevisionConflict(Exception):
    """A compare-and-swap met another revision than expected; `actual` is 0 when there is no object."""

    def __init__(self, key: ObjectKey, expected: int | None, actual: int) -> None:
        super().__init__(f"{key.resource} {key.namespace}/{key.name} is at revision {actual}, not {expected}")
        self.key = key
        self.expected = expected
        self.actual = actual


@dataclass(slots=True)
class _Table:
    """All that the store keeps about one resource."""

    history: deque[Event]
    forgotten: int
    """The newest revision of which this table no longer knows the event."""
    namespaces: dict[str, dict[str, Record]] = field(default_factory=dict)
    watchers: dict[Watcher, None] = field(default_factory=dict)
    listeners: dict[int, Listener] = field(default_factory=dict)


class Store:
    """The objects of one cluster; without a journal they live and die with the process."""

    def __init__(self, *, journal: Journal | None = None, history: int = HISTORY) -> None:
        if history < 1:
            raise ValueError(f"history must be at least 1, got {history}")
        self.revision = 0
        """The revision of the newest change."""
        self._journal = journal
        self._history = history
        self._tables: dict[GroupResource, _Table] = {}
        self._listeners: dict[int, Listener] = {}
        self._next_listener = 0
        self._undelivered: deque[Event] = deque()
        self._delivering = False
        # 0 stands for "must not exist" and "from the beginning", so the first revision that clients see is 1.
        self._origin = 0
        if journal is not None:
            records, self.revision = journal.load()
            self._origin = self.revision
            for key, record in records.items():
                self._table(key.resource).namespaces.setdefault(key.namespace, {})[key.name] = record

    def get(self, key: ObjectKey) -> Record | None:
        """Return the current record, or None."""
        table = self._tables.get(key.resource)
        return None if table is None else table.namespaces.get(key.namespace, {}).get(key.name)

    def list(self, resource: GroupResource, namespace: str | None = None) -> list[Record]:
        """Return the records of one namespace, or of all, sorted by namespace and name."""
        table = self._tables.get(resource)
        if table is None:
            return []
        chosen = sorted(table.namespaces) if namespace is None else [namespace]
        return [record for each in chosen for _, record in sorted(table.namespaces.get(each, {}).items())]

    def count(self, resource: GroupResource) -> int:
        """Return how many objects of a resource there are."""
        table = self._tables.get(resource)
        return 0 if table is None else sum(map(len, table.namespaces.values()))

    def put(self, key: ObjectKey, obj: JsonObject, *, expect: int | None) -> Record:
        """Write an object; `expect` is the revision to replace, 0 for "must not exist", None for "whatever is there".

        Raises `RevisionConflict` when something else is there, and a StatusError when it cannot be written.
        """
        previous = self.get(key)
        _check(key, expect, previous)
        revision = self.revision + 1
        record = _stamped(obj, revision)
        self._commit(Event("MODIFIED" if previous else "ADDED", key, record, previous, revision))
        return record

    def delete(self, key: ObjectKey, *, expect: int | None = None, obj: JsonObject | None = None) -> Record:
        """Remove an object and return its last state, `obj` if given, with the revision of the deletion.

        Raises `RevisionConflict` when there is none or it is at another revision than expected, and a StatusError when
        that cannot be written.
        """
        previous = self.get(key)
        if previous is None:
            raise RevisionConflict(key, expect, 0)
        _check(key, expect, previous)
        revision = self.revision + 1
        record = _stamped(previous.object if obj is None else obj, revision)
        self._commit(Event("DELETED", key, record, previous, revision))
        return record

    def watch(self, resource: GroupResource, *, since: int) -> Watcher:
        """Subscribe to the events after revision `since`; raises `Expired` when some of them are forgotten."""
        table = self._table(resource)
        if since < table.forgotten:
            raise Expired(since, table.forgotten)
        replay = (event for event in table.history if event.revision > since)
        watcher = Watcher(replay, since=since, on_close=lambda closed: table.watchers.pop(closed, None))
        table.watchers[watcher] = None
        return watcher

    def forget_history(self, resource: GroupResource) -> None:
        """Forget the events of a resource, which begins or ends: no watch can start from before now."""
        table = self._table(resource)
        table.history.clear()
        table.forgotten = self.revision

    def subscribe(self, resource: GroupResource | None, callback: Listener) -> Callable[[], None]:
        """Call back for every event of a resource, or of all; the result unsubscribes."""
        listeners = self._listeners if resource is None else self._table(resource).listeners
        number = self._next_listener
        self._next_listener += 1
        listeners[number] = callback
        return lambda: listeners.pop(number, None) and None

    def check(self) -> OSError | None:
        """Find out whether changes can be stored; returns why not."""
        return None if self._journal is None else self._journal.check()

    def close(self) -> None:
        """Close the journal and end every watcher."""
        for table in self._tables.values():
            for watcher in list(table.watchers):
                watcher.close()
        if self._journal is not None:
            self._journal.close()

    def _table(self, resource: GroupResource) -> _Table:
        table = self._tables.get(resource)
        if table is None:
            table = self._tables[resource] = _Table(history=deque(maxlen=self._history), forgotten=self._origin)
        return table

    def _commit(self, event: Event) -> None:
        deleted = event.type == "DELETED"
        if self._journal is not None:
            try:
                self._journal.append(event.key, event.revision, None if deleted else event.record)
            except OSError as error:
                raise errors.cannot_write(str(self._journal.path), error) from error
        self.revision = event.revision
        table = self._table(event.key.resource)
        records = table.namespaces.setdefault(event.key.namespace, {})
        if deleted:
            del records[event.key.name]
            if not records:
                del table.namespaces[event.key.namespace]
        else:
            records[event.key.name] = event.record
        if len(table.history) == self._history:
            table.forgotten = table.history[0].revision
        table.history.append(event)
        for watcher in list(table.watchers):
            watcher.offer(event)
        self._undelivered.append(event)
        if not self._delivering:
            self._deliver()

    def _deliver(self) -> None:
        """Call the listeners; a write made by one of them queues up here instead of overtaking."""
        self._delivering = True
        try:
            while self._undelivered:
                event = self._undelivered.popleft()
                for callback in [*self._table(event.key.resource).listeners.values(), *self._listeners.values()]:
                    try:
                        callback(event)
                    except Exception:
                        _log.exception("a listener failed on %s of %s", event.type, event.key)
        finally:
            self._delivering = False


def _check(key: ObjectKey, expect: int | None, record: Record | None) -> None:
    actual = 0 if record is None else record.revision
    if expect is not None and expect != actual:
        raise RevisionConflict(key, expect, actual)


def _stamped(obj: JsonObject, revision: int) -> Record:
    return Record({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}, revision)
