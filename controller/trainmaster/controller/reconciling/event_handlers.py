"""From events to keys: to which job an object belongs, which keys a change concerns, how urgent it is, what is cached.

Guarantees:
- E-3: an owner is found by group and kind, whatever its version; the reconciler finds what it owns by its UID.
- E-4: a change concerns what the object belongs to after it, and what it belonged to before.
- What it belonged to before is remembered, or else read from the state before if it belongs to something else now. A
  state that cannot be read takes nothing away from those before and after it.
- Of an object that belongs to what its key says, as most do, or to nothing, nothing is kept in memory.
- W-22: what was there at the start, and reminders, come after everything else.
- W-19: what somebody changes of an object that is there already, and what becomes of what was made for it, come before
  objects that are new: in a burst of creations, suspending or deleting an older job, or its failure, waits for none of
  them.
- What a reconcile has written itself comes back without a priority: what it has created is an addition, and a status
  or a label of the reconciled object is nothing that somebody waits for.
- S-16, S-17: what nobody reads is dropped before it is cached, and dropping it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.workqueue.queue import CHANGE_PRIORITY, LOW_PRIORITY, WorkQueue
from trainmaster.controller.reconciling.drift import strip_managed_fields
from trainmaster.controller.reconciling.expectations import EventFilter
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject

OWNER_INDEX: Final = "owner"
"""Index of what jobs own, by `owner_value` of the controller."""

MapFunc: TypeAlias = Callable[[Delta], Iterable[str]]
"""Maps a change of one object to the keys of the objects to reconcile."""

PriorityFunc: TypeAlias = Callable[[Delta], int]
"""Tells how urgent a change is."""

DelayFunc: TypeAlias = Callable[[Sequence[str], Delta], float]
"""Tells for how many seconds the keys of a change may wait."""

_IDENTITY: Final = frozenset({"apiVersion", "kind", "metadata", UNREADABLE})
_METADATA_IDENTITY: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "ownerReferences", "creationTimestamp", "deletionTimestamp"}
)

_WANTED: Final = ("uid", "generation", "deletionTimestamp")


def owner_value(namespace: str | None, uid: str) -> str:
    """Return the value under which the index has what a job controls: another namespace may name any UID."""
    return f"{namespace}/{uid}"


def owner_values(obj: JsonObject) -> list[str]:
    """The index function of `OWNER_INDEX`."""
    metadata = obj["metadata"]
    return [
        owner_value(metadata.get("namespace"), reference["uid"])
        for reference in metadata.get("ownerReferences") or []
        if reference.get("controller") and reference.get("uid")
    ]


def controllers(obj: JsonObject) -> Iterator[tuple[str, str, str]]:
    """Return group, kind and name of what controls an object, or says so."""
    for each in obj["metadata"].get("ownerReferences") or []:
        if each.get("controller"):
            yield str(each.get("apiVersion")).partition("/")[0], str(each.get("kind")), str(each.get("name"))


def strip_foreign_objects(*owners: tuple[str, str]) -> Callable[[JsonObject], JsonObject]:
    """Return the transform of a kind that we apply: of what none of these kinds controls only its identity stays."""

    def strip(obj: JsonObject) -> JsonObject:
        is_ours = any(controller[:2] in owners for controller in controllers(obj))
        return strip_managed_fields(obj) if is_ours else strip_to_identity(obj)

    return strip


def strip_to_identity(obj: JsonObject, *, metadata: Collection[str] = ()) -> JsonObject:
    """Strip an object, in place, of all but its identity and its owners, and what is named of its metadata."""
    for field in obj.keys() - _IDENTITY:
        del obj[field]
    for field in obj["metadata"].keys() - _METADATA_IDENTITY - set(metadata):
        del obj["metadata"][field]
    return obj


class ConcernedKeys:
    """Maps the changes of one collection.

    Args:
        keys_of: Maps a state of an object.
        usual: To what an object most often belongs, by its key alone; a bad guess costs memory, nothing else.
    """

    def __init__(
        self, keys_of: Callable[[JsonObject], Iterable[str]], *, usual: Callable[[str], str] = lambda key: key
    ) -> None:
        self._keys_of = keys_of
        self._usual = usual
        self._unusual: dict[str, tuple[str, ...]] = {}
        """What each object belongs to that does not belong to what is usual."""

    def __len__(self) -> int:
        return len(self._unusual)

    def __call__(self, change: Delta) -> Iterable[str]:
        """Return the keys that a change concerns."""
        state = change.old if change.is_deletion else change.new
        assert state is not None  # noqa: S101 - there is one before or after
        after = tuple(dict.fromkeys(self._keys_of(state)))
        if change.resync:
            return after
        key = change.key
        usual = (self._usual(key),)
        before = () if change.is_addition else self._unusual.pop(key, None)
        if before is None:
            # Nothing is kept of what belongs to nothing: only the state before says whether it belonged to the usual.
            old = None if change.is_deletion or after == usual else change.old
            before = usual if old is None else tuple(self._keys_of(old))
        if not change.is_deletion and after not in ((), usual):
            self._unusual[key] = after
        return after if after == before else dict.fromkeys((*before, *after))


def own_key(change: Delta) -> Iterable[str]:
    """Return the key of the object that has changed: the one that is reconciled."""
    return (change.key,)


def enqueue_on_change(
    informer: Informer, keys_of: MapFunc, queue: WorkQueue, priority_of: PriorityFunc, *, resync: bool = False
) -> None:
    """Have every change of a collection put the keys that it concerns into a queue."""

    def enqueue(change: Delta) -> None:
        priority = priority_of(change)
        for key in keys_of(change):
            queue.add(key, priority=priority)

    informer.add_event_handler(enqueue, resync=resync)


def enqueue_unless_echo(
    informer: Informer,
    keys_of: MapFunc,
    event_filter: EventFilter,
    priority_of: PriorityFunc,
    *,
    owned: bool = True,
    anew: bool = False,
    resync: bool = False,
    delay_of: DelayFunc | None = None,
) -> None:
    """Have every change of a collection put the keys that it concerns into a queue, unless it is an echo.

    Changes of what is not `owned` are none; `delay_of` says how long keys may wait for what else comes.
    """

    def tell(change: Delta) -> None:
        priority = priority_of(change)
        version = change.version if owned and not (change.initial or change.resync) else None
        keys = tuple(keys_of(change))
        delay = 0.0 if delay_of is None else delay_of(keys, change)
        for key in keys:
            event_filter.add(key, version, anew=anew or version is None, priority=priority, delay=delay)

    informer.add_event_handler(tell, resync=resync)


def priority_of_own(change: Delta) -> int:
    """Return the priority of a change of the object itself that is reconciled."""
    priority = priority_of_other(change)
    return (
        CHANGE_PRIORITY if priority == 0 and not change.is_addition and _asks_for_something_else(change) else priority
    )


def priority_of_owned(change: Delta) -> int:
    """Return the priority of a change of an object that belongs to the one that is reconciled."""
    priority = priority_of_other(change)
    return CHANGE_PRIORITY if priority == 0 and not change.is_addition else priority


def priority_of_other(change: Delta) -> int:
    """Return the priority of a change of anything else, which may concern any number of objects."""
    return LOW_PRIORITY if change.initial or change.resync else 0


def _asks_for_something_else(change: Delta) -> bool:
    """Whether an object is deleted or its spec has changed; the server counts both as another generation."""
    if change.statuses() is not None:
        return False
    before, after = change.old, change.new
    if before is None or after is None:
        return True
    return any(before["metadata"].get(name) != after["metadata"].get(name) for name in _WANTED)
