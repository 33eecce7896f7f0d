"""Garbage collection: objects go when all their owners are gone.

- Background: an object whose owners no longer exist is deleted. An owner counts as gone when no object has its uid, or
  when it lives in another namespace.
- Foreground: an owner that waits for its dependents (finalizer `foregroundDeletion`) has them deleted first; only those
  that say `blockOwnerDeletion` hold it up.
- Orphan: an owner that leaves its dependents alone (finalizer `orphan`) has itself removed from their owner references.
- An object that has another living owner stays, and loses its references to the gone ones.

Two indexes, both fed by the store: who exists, by uid, and who depends on whom.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.options import Propagation
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.client import delete, find
from trainmaster.devcluster.controllers.loop import ControllerLoop, SingleLoop
from trainmaster.devcluster.controllers.objects import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    has_finalizer,
    is_terminating,
    without_finalizer,
)
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="garbage-collector")


class GarbageCollector(SingleLoop):
    """Collects objects of every kind."""

    def __init__(self, api: Api, *, settings: ControllerSettings) -> None:
        self._api = api
        self._living: dict[str, ObjectKey] = {}
        self._dependents: dict[str, dict[ObjectKey, None]] = {}
        self._loop = ControllerLoop("garbage-collector", self._reconcile, api=api, settings=settings)
        self._loop.watch(None, self._observe)

    def _observe(self, event: Event) -> None:
        uid = event.record.metadata["uid"]
        owners = _owner_uids(event.record.object)
        before = _owner_uids(event.previous.object) if event.previous is not None else set()
        for owner in before - owners if event.type != "DELETED" else before | owners:
            self._forget(owner, event.key)
        if event.type == "DELETED":
            self._living.pop(uid, None)
            for dependent in self._dependents.get(uid, ()):
                self._loop.add(dependent)
        else:
            self._living[uid] = event.key
            for owner in owners:
                self._dependents.setdefault(owner, {})[event.key] = None
            # What becomes of its owners later reaches the object through them.
            if (owners and (event.type == "ADDED" or owners != before)) or _waits(event.record.object):
                self._loop.add(event.key)
        # An owner that waits for its dependents may have waited for this one.
        for owner in before | owners:
            owner_key = self._living.get(owner)
            if owner_key is not None and _waits(find(self._api, owner_key)):
                self._loop.add(owner_key)

    def _forget(self, owner: str, dependent: ObjectKey) -> None:
        dependents = self._dependents.get(owner, {})
        dependents.pop(dependent, None)
        if not dependents:
            self._dependents.pop(owner, None)

    async def _reconcile(self, key: ObjectKey) -> None:
        obj = find(self._api, key)
        if obj is None or not self._api.registry.serves(key.resource):
            return
        if _waits(obj):
            await self._settle_dependents(key, obj)
        if is_terminating(obj) or not obj["metadata"].get("ownerReferences"):
            return
        await self._judge(key, obj)

    async def _settle_dependents(self, key: ObjectKey, owner: JsonObject) -> None:
        """Orphan or delete the dependents of an object that waits for that, and let it go when it is done."""
        uid = owner["metadata"]["uid"]
        dependents = [
            (dependent, obj)
            for dependent in list(self._dependents.get(uid, ()))
            if (obj := find(self._api, dependent)) is not None
        ]
        if has_finalizer(owner, ORPHAN_FINALIZER):
            for dependent, obj in dependents:
                await self._update(dependent, _without_owners(obj, {uid}))
            await self._update(key, without_finalizer(owner, ORPHAN_FINALIZER))
            return
        if any(_blocks(obj, uid) for _, obj in dependents):
            for dependent, obj in dependents:
                if not is_terminating(obj):
                    self._loop.add(dependent)
            return
        await self._update(key, without_finalizer(owner, FOREGROUND_FINALIZER))

    async def _judge(self, key: ObjectKey, obj: JsonObject) -> None:
        """Delete an object without living owners; clean up the owner references of one that has some."""
        gone: set[str] = set()
        waiting: set[str] = set()
        solid = False
        for reference in obj["metadata"]["ownerReferences"]:
            owner = self._owner(reference["uid"], key)
            if owner is None:
                gone.add(reference["uid"])
            elif is_terminating(owner) and has_finalizer(owner, FOREGROUND_FINALIZER):
                waiting.add(reference["uid"])
            else:
                solid = True
        if solid:
            if gone or waiting:
                await self._update(key, _without_owners(obj, gone | waiting))
            return
        has_dependents = bool(self._dependents.get(obj["metadata"]["uid"]))
        propagation: Propagation = "Background"
        if has_finalizer(obj, ORPHAN_FINALIZER):
            propagation = "Orphan"
        elif has_finalizer(obj, FOREGROUND_FINALIZER) or (waiting and has_dependents):
            propagation = "Foreground"
        await delete(self._api, key.resource, obj, propagation=propagation)

    def _owner(self, uid: str, dependent: ObjectKey) -> JsonObject | None:
        key = self._living.get(uid)
        if key is None or key.namespace not in {"", dependent.namespace}:
            return None
        return find(self._api, key)

    async def _update(self, key: ObjectKey, obj: JsonObject) -> None:
        current = find(self._api, key)
        if current is not None and self._api.registry.serves(key.resource):
            await self._api.update(key.resource, obj, namespace=key.namespace or None, name=key.name, options=_OPTIONS)


def _owner_uids(obj: JsonObject) -> set[str]:
    return {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}


def _waits(obj: JsonObject | None) -> bool:
    """Tell whether an object is being deleted and its dependents have to be dealt with first."""
    return (
        obj is not None
        and is_terminating(obj)
        and (has_finalizer(obj, FOREGROUND_FINALIZER) or has_finalizer(obj, ORPHAN_FINALIZER))
    )


def _blocks(obj: JsonObject, owner: str) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner and reference.get("blockOwnerDeletion") for reference in references)


def _without_owners(obj: JsonObject, uids: set[str]) -> JsonObject:
    kept = [reference for reference in obj["metadata"]["ownerReferences"] if reference["uid"] not in uids]
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}}
