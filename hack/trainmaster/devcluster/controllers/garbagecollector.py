"""Garbage collection: objects go when all their owners are gone.

- Background: an object whose owners no longer exist is deleted. An owner counts as gone when no object has its uid, or
  when it lives in another namespace.
- Foreground: an owner that waits for its dependents (finalizer `foregroundDeletion`) has them deleted first; only those
  that say `blockOwnerDeletion` hold it up.
- Orphan: an owner that leaves its dependents alone (finalizer `orphan`) has itself removed from their owner references.
- An object that has another living owner stays, and loses its references to the gone ones.

Who exists, by uid, and who depends on whom stands in a graph, which the store feeds.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.options import Propagation
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import delete, find
from trainmaster.devcluster.controllers.objects import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    has_finalizer,
    is_terminating,
    without_finalizer,
)
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="garbage-collector")


class OwnerGraph:
    """Objects of every kind as nodes, owner references as edges."""

    def __init__(self) -> None:
        self._keys: dict[str, ObjectKey] = {}
        self._dependents: dict[str, dict[ObjectKey, None]] = {}

    def observe(self, event: Event) -> None:
        """Take in a change of an object."""
        uid = event.record.metadata["uid"]
        owners, before = owner_uids(event.record.object), previous_owner_uids(event)
        for owner in before - owners if event.type != "DELETED" else before | owners:
            self._remove_edge(owner, event.key)
        if event.type == "DELETED":
            self._keys.pop(uid, None)
        else:
            self._keys[uid] = event.key
            for owner in owners:
                self._dependents.setdefault(owner, {})[event.key] = None

    def _remove_edge(self, owner: str, dependent: ObjectKey) -> None:
        dependents = self._dependents.get(owner, {})
        dependents.pop(dependent, None)
        if not dependents:
            self._dependents.pop(owner, None)

    def key_of(self, uid: str) -> ObjectKey | None:
        """Return where the object with the uid lives; None if there is none."""
        return self._keys.get(uid)

    def dependents_of(self, uid: str) -> list[ObjectKey]:
        """Return the objects that name the uid as an owner, whether or not that exists."""
        return list(self._dependents.get(uid, ()))


def owner_uids(obj: JsonObject) -> set[str]:
    """Return the uids of all owners of an object."""
    return {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}


def previous_owner_uids(event: Event) -> set[str]:
    """Return the uids of the owners that the object had before the event."""
    return owner_uids(event.previous.object) if event.previous is not None else set()


def blocks_owner_deletion(obj: JsonObject, owner: str) -> bool:
    """Tell whether a dependent holds up the foreground deletion of the owner with the uid."""
    references = obj["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner and reference.get("blockOwnerDeletion") for reference in references)


def without_owners(obj: JsonObject, uids: set[str]) -> JsonObject:
    """Return the object without its references to some owners."""
    kept = [reference for reference in obj["metadata"]["ownerReferences"] if reference["uid"] not in uids]
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}}


class GarbageCollector(SingleLoopController):
    """Collects objects of every kind."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._graph = OwnerGraph()
        self._loop = ControlLoop("garbage-collector", self._reconcile, api=api)
        self._loop.watch(None, self._object_changed)

    def _object_changed(self, event: Event) -> None:
        self._graph.observe(event)
        owners, before = owner_uids(event.record.object), previous_owner_uids(event)
        if event.type == "DELETED":
            for dependent in self._graph.dependents_of(event.record.metadata["uid"]):
                self._loop.add(dependent)
        # What becomes of its owners later reaches the object through them.
        elif (owners and (event.type == "ADDED" or owners != before)) or _awaits_dependents(event.record.object):
            self._loop.add(event.key)
        # An owner that waits for its dependents may have waited for this one.
        for owner in before | owners:
            owner_key = self._graph.key_of(owner)
            if owner_key is not None and _awaits_dependents(find(self._api, owner_key)):
                self._loop.add(owner_key)

    async def _reconcile(self, key: ObjectKey) -> None:
        obj = find(self._api, key)
        if obj is None or not self._api.registry.serves(key.resource):
            return
        if _awaits_dependents(obj):
            await self._process_dependents(key, obj)
        if is_terminating(obj) or not obj["metadata"].get("ownerReferences"):
            return
        await self._attempt_to_delete(key, obj)

    async def _process_dependents(self, key: ObjectKey, owner: JsonObject) -> None:
        """Orphan or delete the dependents of an object that waits for that, and let it go when it is done."""
        uid = owner["metadata"]["uid"]
        dependents = [
            (dependent, obj)
            for dependent in self._graph.dependents_of(uid)
            if (obj := find(self._api, dependent)) is not None
        ]
        if has_finalizer(owner, ORPHAN_FINALIZER):
            for dependent, obj in dependents:
                await self._update(dependent, without_owners(obj, {uid}))
            await self._update(key, without_finalizer(owner, ORPHAN_FINALIZER))
            return
        if any(blocks_owner_deletion(obj, uid) for _, obj in dependents):
            for dependent, obj in dependents:
                if not is_terminating(obj):
                    self._loop.add(dependent)
            return
        await self._update(key, without_finalizer(owner, FOREGROUND_FINALIZER))

    async def _attempt_to_delete(self, key: ObjectKey, obj: JsonObject) -> None:
        """Delete an object without living owners; clean up the owner references of one that has some."""
        dangling: set[str] = set()
        waiting: set[str] = set()
        solid = False
        for reference in obj["metadata"]["ownerReferences"]:
            owner = self._owner(reference["uid"], key)
            if owner is None:
                dangling.add(reference["uid"])
            elif is_terminating(owner) and has_finalizer(owner, FOREGROUND_FINALIZER):
                waiting.add(reference["uid"])
            else:
                solid = True
        if solid:
            if dangling or waiting:
                await self._update(key, without_owners(obj, dangling | waiting))
            return
        has_dependents = bool(self._graph.dependents_of(obj["metadata"]["uid"]))
        propagation: Propagation = "Background"
        if has_finalizer(obj, ORPHAN_FINALIZER):
            propagation = "Orphan"
        elif has_finalizer(obj, FOREGROUND_FINALIZER) or (waiting and has_dependents):
            propagation = "Foreground"
        await delete(self._api, key.resource, obj, propagation=propagation)

    def _owner(self, uid: str, dependent: ObjectKey) -> JsonObject | None:
        key = self._graph.key_of(uid)
        if key is None or key.namespace not in {"", dependent.namespace}:
            return None
        return find(self._api, key)

    async def _update(self, key: ObjectKey, obj: JsonObject) -> None:
        current = find(self._api, key)
        if current is not None and self._api.registry.serves(key.resource):
            await self._api.update(key.resource, obj, options=_OPTIONS)


def _awaits_dependents(obj: JsonObject | None) -> bool:
    """Tell whether an object is being deleted and its dependents have to be dealt with first."""
    return (
        obj is not None
        and is_terminating(obj)
        and (has_finalizer(obj, FOREGROUND_FINALIZER) or has_finalizer(obj, ORPHAN_FINALIZER))
    )
