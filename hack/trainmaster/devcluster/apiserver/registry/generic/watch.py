"""A watch: the stream of changes that one client sees, through its selectors and in the form of its kind.

- An object that starts to match the selectors arrives as ADDED, one that stops as DELETED, with its last matching state
  and the revision of the change.
- Without a start revision the stream begins with an ADDED for each object there is; `bookmark` marks their end.
- Without a state as new as its start revision a watch waits for the changes that follow it.
- A watcher that is too slow, or whose kind is no longer served, is cut off.

A `SelectionPredicate` says which objects of a kind a watch, a list or a deletion of many is about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.selectors import FieldSelector, LabelSelector
from trainmaster.devcluster.apiserver.storage import Event, Expired, Record, Store, Watcher
from trainmaster.runtime.jsontree import JsonObject


class SelectionPredicate:
    """A compiled pair of selectors."""

    def __init__(self, kind: Kind, labels: LabelSelector | None = None, fields: FieldSelector | None = None) -> None:
        self._labels = labels
        self._fields: list[tuple[Callable[[JsonObject], str], bool, str]] = []
        for path, operator, value in fields.requirements if fields is not None else ():
            getter = _METADATA.get(path) or kind.field_labels.get(path)
            if getter is None:
                raise errors.bad_request(_unsupported(kind, path))
            self._fields.append((getter, operator != "!=", value))
        self.everything = labels is None and not self._fields
        """Whether there is nothing to check."""

    def matches(self, obj: JsonObject) -> bool:
        """Return whether an object, in the form of the kind, is selected."""
        if self._labels is not None and not self._labels.matches(obj["metadata"].get("labels") or {}):
            return False
        return all((getter(obj) == value) == wanted for getter, wanted, value in self._fields)


def _unsupported(kind: Kind, path: str) -> str:
    if kind.custom or kind.field_labels:
        return f"field label not supported: {path}"
    return f'{errors.quote(path)} is not a known field selector: only "metadata.name", "metadata.namespace"'


_METADATA: dict[str, Callable[[JsonObject], str]] = {
    "metadata.name": lambda obj: str(obj["metadata"].get("name", "")),
    "metadata.namespace": lambda obj: str(obj["metadata"].get("namespace", "")),
}


WatchEventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change as the client sees it; a BOOKMARK has no object."""

    type: WatchEventType
    object: JsonObject | None
    revision: int
    record: Record | None = None
    """The record that holds the object; its encoded JSON is shared by all watchers."""


class Watch:
    """An async iterator of watch events; close it, or use it as an async context manager."""

    def __init__(
        self,
        *,
        kind: Kind,
        store: Store,
        namespace: str | None,
        since: int | None,
        selection: SelectionPredicate,
        bookmark: bool,
        on_close: Callable[[Watch], None],
    ) -> None:
        self.kind = kind
        self._store = store
        self._namespace = namespace
        self._selection = selection
        self._on_close = on_close
        self._initial: deque[WatchEvent] = deque()
        start = since or store.revision
        self._after = start
        self._watcher = _subscribe(store, kind, min(start, store.revision))
        if not since:
            for record in store.list(kind.stored_as, namespace):
                shown = self._shown(record)
                if shown is not None:
                    self._initial.append(WatchEvent("ADDED", shown.object, record.revision, shown))
        if bookmark:
            self._initial.append(WatchEvent("BOOKMARK", None, start))

    @property
    def revision(self) -> int:
        """The revision up to which the client has seen everything: what a bookmark may say.

        It is 0 while present objects are still on their way, and before the start revision: there is no version yet to
        resume from.
        """
        if self._initial or self._store.revision < self._after:
            return 0
        return self._watcher.delivered if self._watcher.pending else self._store.revision

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchEvent:
        if self._initial:
            return self._initial.popleft()
        while True:
            try:
                event = await anext(self._watcher)
            except Expired as error:
                raise errors.expired(str(error)) from error
            seen = self._translate(event)
            if seen is not None:
                return seen

    def take(self) -> WatchEvent | None:
        """Return the next event if it is there already."""
        if self._initial:
            return self._initial.popleft()
        while (event := self._watcher.take()) is not None:
            if (seen := self._translate(event)) is not None:
                return seen
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream; closing twice is harmless."""
        self._initial.clear()
        self._watcher.close()
        self._on_close(self)

    async def aclose(self) -> None:
        """End the stream, for callers that treat it as an async generator."""
        self.close()

    def _shown(self, record: Record | None) -> Record | None:
        """Return a record in the form of the kind if the selectors match it."""
        if record is None:
            return None
        obj = self.kind.strategy.from_storage(record.object)
        if not self._selection.everything and not self._selection.matches(obj):
            return None
        return record if obj is record.object else Record(obj, record.revision)

    def _translate(self, event: Event) -> WatchEvent | None:
        if event.revision <= self._after or (self._namespace is not None and event.key.namespace != self._namespace):
            return None
        if self._selection.everything:
            shown = self._shown(event.record)
            return WatchEvent(event.type, shown.object, event.revision, shown) if shown is not None else None
        before = self._shown(event.previous)
        after = self._shown(event.record) if event.type != "DELETED" else None
        if after is not None:
            return WatchEvent("MODIFIED" if before is not None else "ADDED", after.object, event.revision, after)
        if before is None:
            return None
        # The last state that the client knew, stamped with the revision of the change that took it away.
        last = {
            **before.object,
            "metadata": {**before.object["metadata"], "resourceVersion": str(event.revision)},
        }
        return WatchEvent("DELETED", last, event.revision, Record(last, event.revision))


def _subscribe(store: Store, kind: Kind, start: int) -> Watcher:
    try:
        return store.watch(kind.stored_as, since=start)
    except Expired as error:
        raise errors.expired(str(error)) from error
