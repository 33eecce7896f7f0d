"""One attempt at a write: the steps before it, admission, and the compare-and-swap.

From the last time that something is awaited to the moment when the object is stored, nothing is: what is checked there
stays true until then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.generic.admission_request import Admission, deletion_request
from trainmaster.devcluster.apiserver.registry.generic.crd_controller import CrdController
from trainmaster.devcluster.apiserver.registry.generic.delete import before_delete, check_preconditions, is_released
from trainmaster.devcluster.apiserver.registry.generic.scope import AdmissionHook, RequestScope
from trainmaster.devcluster.apiserver.registry.generic.update import before_create, before_update, check_namespace
from trainmaster.devcluster.apiserver.registry.objectmeta import generated_name
from trainmaster.devcluster.apiserver.registry.options import DeleteOptions, WriteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.times import Clock
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.storage import ObjectKey, Record, RevisionConflict, Store
from trainmaster.runtime.jsontree import JsonObject

_NAME_ATTEMPTS = 8
"""How many generated names may be taken before a creation fails; the real server's number."""


class Writer:
    """Creates, replaces and deletes single objects; whoever calls it looks objects up and tries again."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        chooser: random.Random,
        new_uid: Callable[[], str],
        definitions: CrdController,
    ) -> None:
        self.hooks: dict[GroupResource, list[AdmissionHook]] = {}
        """What is called on every creation and change of a resource, in this order."""
        self.admission: Admission | None = None
        """What mutates and validates every write."""
        """What refuses a creation for which there is no room; it is not awaited."""
        self._store = store
        self._clock = clock
        self._chooser = chooser
        self._new_uid = new_uid
        self._definitions = definitions

    async def create(
        self, kind: Kind, obj: JsonObject, options: WriteOptions, *, is_applied: bool = False
    ) -> JsonObject:
        """Create a decoded object and return it; raises a StatusError."""
        self._check_creation(kind, obj)
        metadata = obj["metadata"]
        generated = not metadata.get("name") and bool(metadata.get("generateName"))
        if generated:
            metadata["name"] = self._free_name(kind, metadata)
        scope = self._scope(kind, options)
        obj = await before_create(scope, obj, uid=self._new_uid(), is_applied=is_applied, name_is_generated=generated)
        await scope.validate_admission(obj, None)
        # From here to the end nothing is awaited.
        self._check_creation(kind, obj)
        metadata = obj["metadata"]
        key = object_key(kind, metadata.get("namespace"), metadata["name"])
        if self._store.get(key) is not None:
            raise errors.already_exists(kind.resource, metadata["name"])
        kind.strategy.allocate(obj, None, self._others(kind), dry_run=options.dry_run)
        if options.dry_run:
            return obj
        return kind.strategy.from_storage(self._store.put(key, kind.strategy.to_storage(obj), expect=0).object)

    async def replace(
        self,
        kind: Kind,
        new: JsonObject,
        record: Record,
        subresource: str | None,
        options: WriteOptions,
        *,
        is_applied: bool = False,
    ) -> JsonObject:
        """Make one attempt to replace a record; raises `RevisionConflict` when it was replaced meanwhile."""
        strategy = kind.strategy
        old = strategy.from_storage(record.object)
        scope = self._scope(kind, options)
        new = await before_update(scope, new, old, subresource=subresource, is_applied=is_applied)
        await scope.validate_admission(new, old, subresource=subresource or "")
        # From here to the end nothing is awaited.
        key = object_key(kind, record.metadata.get("namespace"), record.metadata["name"])
        current = self._store.get(key)
        if current is None:
            raise errors.not_found(kind.resource, key.name)
        if current.revision != record.revision:
            raise RevisionConflict(key, record.revision, current.revision)
        released = is_released(kind, new)
        if new is not old and not subresource:
            strategy.allocate(new, old, self._others(kind), dry_run=options.dry_run)
        if options.dry_run or (new is old and not released):
            return new
        stored = strategy.to_storage(new)
        if released:
            return strategy.from_storage(self._store.delete(key, expect=record.revision, obj=stored).object)
        return strategy.from_storage(self._store.put(key, stored, expect=record.revision).object)

    async def validate_deletion(self, kind: Kind, record: Record, options: DeleteOptions) -> bool:
        """Have webhooks validate a deletion; returns whether that took time, so that the record may be stale."""
        admission = self.admission
        if admission is None or not admission.handles(kind, "DELETE", ""):
            return False
        old = kind.strategy.from_storage(record.object)
        check_preconditions(kind, old, options)
        await admission.validate(deletion_request(kind, old, options), None)
        return True

    def delete(self, kind: Kind, record: Record, options: DeleteOptions) -> tuple[JsonObject, bool]:
        """Delete synchronously, so that no precondition can become false on the way."""
        metadata = record.metadata
        key = object_key(kind, metadata.get("namespace"), metadata["name"])
        check_preconditions(kind, record.object, options)
        kind.strategy.check_delete(record.object)
        deletion = before_delete(kind, record.object, options, now=self._clock())
        result = record
        if not options.dry_run:
            if deletion.remove:
                result = self._store.delete(key, expect=record.revision)
            elif deletion.changed:
                result = self._store.put(key, deletion.obj, expect=record.revision)
        # A removal can follow from the mark at once, as that of a definition without objects does.
        gone = deletion.remove or (not options.dry_run and self._store.get(key) is None)
        return kind.strategy.from_storage(result.object), gone

    def _scope(self, kind: Kind, options: WriteOptions) -> RequestScope:
        return RequestScope(kind, options, self._clock(), self.hooks.get(kind.resource, ()), self.admission)

    def _others(self, kind: Kind) -> Callable[[], Iterable[JsonObject]]:
        return lambda: (kind.strategy.from_storage(record.object) for record in self._store.list(kind.stored_as))

    def _check_creation(self, kind: Kind, obj: JsonObject) -> None:
        """Refuse to create in a namespace that does not exist or goes away, or what the cluster cannot serve."""
        kind.strategy.check_create(obj)
        self._definitions.check_create(kind, obj["metadata"].get("name", ""))
        check_namespace(self._store, kind, obj["metadata"])

    def _free_name(self, kind: Kind, metadata: JsonObject) -> str:
        for _ in range(_NAME_ATTEMPTS):
            name = generated_name(metadata["generateName"], self._chooser)
            if self._store.get(object_key(kind, metadata.get("namespace"), name)) is None:
                return name
        raise errors.already_exists(kind.resource, name)


def object_key(kind: Kind, namespace: str | None, name: str) -> ObjectKey:
    """Return where the store keeps an object of a kind."""
    return ObjectKey(kind.stored_as, (namespace or "") if kind.namespaced else "", name)
