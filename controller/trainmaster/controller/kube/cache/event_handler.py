"""The event handlers of an informer: functions of deltas, or functions for additions, updates and deletions.

Guarantees:
- S-3: a deletion that nobody saw brings a `DeletedFinalStateUnknown`, which holds the last state that was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.runtime.jsontree import JsonObject

ResourceEventHandler: TypeAlias = Callable[[Delta], object]
"""Gets each delta; what it does not read is not decoded. Synchronous and quick: it puts keys into queues."""


@dataclass(frozen=True, slots=True)
class DeletedFinalStateUnknown:
    """A deletion that was not seen; `object` is the last state that was, and may be old."""

    key: str
    object: JsonObject


class OnAdd(Protocol):
    """Gets an object that is new to the store."""

    def __call__(self, obj: JsonObject, initial: bool, /) -> object:
        """`initial` says that it comes from the first snapshot."""


OnUpdate: TypeAlias = Callable[[JsonObject, JsonObject], object]
OnDelete: TypeAlias = Callable[["JsonObject | DeletedFinalStateUnknown"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceEventHandlerFuncs:
    """A `ResourceEventHandler` made of functions of objects; all handlers of one delta share its trees."""

    on_add: OnAdd | None = None
    on_update: OnUpdate | None = None
    on_delete: OnDelete | None = None

    def __call__(self, delta: Delta) -> None:
        """Call the function that fits."""
        if delta.is_deletion:
            if self.on_delete is not None and (old := delta.old) is not None:
                self.on_delete(DeletedFinalStateUnknown(delta.key, old) if delta.final_state_unknown else old)
        elif delta.is_addition:
            if self.on_add is not None and (new := delta.new) is not None:
                self.on_add(new, delta.initial)
        elif self.on_update is not None and (old := delta.old) is not None and (new := delta.new) is not None:
            self.on_update(old, new)


def final_state(deleted: JsonObject | DeletedFinalStateUnknown) -> JsonObject:
    """Return the last known state of what `on_delete` was given."""
    return deleted.object if isinstance(deleted, DeletedFinalStateUnknown) else deleted
