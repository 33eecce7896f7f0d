"""Custom resources: what follows from a change of a CustomResourceDefinition, within the very write that changes it.

- An established definition is served as soon as its creation returns; a change replaces the kind.
- A deleted definition stays until its objects are gone: they are deleted, no new ones can be created, and the last one
  that goes takes the definition with it. Watches of a kind that is no longer served end.
- When a definition goes, those whose names clashed with it are looked at again.
- Definitions found in the store at start are served as if they had just been created.
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.customresource import kind_of
from trainmaster.devcluster.apiserver.registry.customresourcedefinition import (
    CLEANUP_FINALIZER,
    accept_names,
    is_established,
    resource_of,
)
from trainmaster.devcluster.apiserver.registry.generic.delete import before_delete
from trainmaster.devcluster.apiserver.registry.options import DeleteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind, Registry
from trainmaster.devcluster.apiserver.registry.times import Clock, timestamp
from trainmaster.devcluster.apiserver.resources import CRDS, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey, Record, Store


class CrdController:
    """Keeps the registry in step with the stored definitions."""

    def __init__(
        self, store: Store, registry: Registry, *, clock: Clock, on_removed: Callable[[GroupResource], None]
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._on_removed = on_removed
        for record in store.list(CRDS):
            self._serve(record)
        store.subscribe(None, self._note)
        for record in store.list(CRDS):
            # What the last process did not get to, because it was killed or its disk was full.
            self._accept(record)
            self._clean(record)

    def check_create(self, kind: Kind, name: str) -> None:
        """Refuse a new object of a definition that is being deleted."""
        if kind.custom:
            definition = self._store.get(_definition_key(kind.resource))
            if definition is not None and "deletionTimestamp" in definition.metadata:
                text = "create not allowed while custom resource definition is terminating"
                raise errors.forbidden(text, resource=kind.resource, name=name)

    def _note(self, event: Event) -> None:
        if event.key.resource == CRDS:
            if event.type == "DELETED":
                self._forget(resource_of(event.record.object))
            else:
                self._serve(event.record)
                self._accept(event.record)
                self._clean(event.record)
        elif event.type == "DELETED":
            definition = self._store.get(_definition_key(event.key.resource))
            if definition is not None:
                self._finish(definition)

    def _serve(self, record: Record) -> None:
        if is_established(record.object):
            if not self._registry.serves(resource_of(record.object)):
                self._store.forget_history(resource_of(record.object))
            self._registry.add(kind_of(record.object))

    def _clean(self, record: Record) -> None:
        """Delete the objects of a definition that is being deleted."""
        if "deletionTimestamp" not in record.metadata or CLEANUP_FINALIZER not in record.metadata.get("finalizers", ()):
            return
        resource = resource_of(record.object)
        if self._registry.serves(resource):
            kind = self._registry.get(resource)
            for each in self._store.list(resource):
                if "deletionTimestamp" in each.metadata:
                    continue
                key = ObjectKey(resource, each.metadata.get("namespace", ""), each.metadata["name"])
                deletion = before_delete(kind, each.object, DeleteOptions(), now=self._clock())
                if deletion.remove:
                    self._store.delete(key, expect=each.revision)
                else:
                    self._store.put(key, deletion.obj, expect=each.revision)
        self._finish(record)

    def _finish(self, record: Record) -> None:
        """Let a definition go whose last object is gone."""
        current = self._store.get(ObjectKey(CRDS, "", record.metadata["name"]))
        if current is None or "deletionTimestamp" not in current.metadata:
            return
        if self._store.count(resource_of(current.object)):
            return
        finalizers = [each for each in current.metadata.get("finalizers", ()) if each != CLEANUP_FINALIZER]
        key = ObjectKey(CRDS, "", current.metadata["name"])
        if not finalizers:
            self._store.delete(key, expect=current.revision)
        elif len(finalizers) < len(current.metadata["finalizers"]):
            metadata = {**current.metadata, "finalizers": finalizers}
            self._store.put(key, {**current.object, "metadata": metadata}, expect=current.revision)

    def _forget(self, resource: GroupResource) -> None:
        self._registry.remove(resource)
        self._on_removed(resource)
        for record in self._store.list(CRDS):
            self._accept(record)

    def _accept(self, record: Record) -> None:
        """Bring the names in the status of a definition up to date; written only when something changes."""
        key = ObjectKey(CRDS, "", record.metadata["name"])
        current = self._store.get(key)
        if current is not record or "deletionTimestamp" in record.metadata:
            return
        accepted = accept_names(record.object, self._registry, now=timestamp(self._clock()))
        if accepted["status"] != record.object.get("status"):
            self._store.put(key, accepted, expect=record.revision)


def _definition_key(resource: GroupResource) -> ObjectKey:
    return ObjectKey(CRDS, "", str(resource))
