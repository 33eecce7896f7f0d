"""The verbs of the Kubernetes API, without HTTP.

The way of a write: decode (copy, prune, unknown fields) -> default -> mutating admission and hooks -> prune and default
again -> stamp what belongs to the server -> validate -> note who manages which fields -> validating admission -> store.

- A write that changes nothing keeps the resource version and causes no event.
- Writes are compare-and-swap. A request that names a resource version fails with 409 if another writer was faster;
  one that names none is repeated, because hooks are awaited and the world may change meanwhile.
- Objects that are returned are shared with the store: whoever wants to change one copies it first.
- Every refusal is a `StatusError`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic.admission_request import Admission
from trainmaster.devcluster.apiserver.registry.generic.crd_controller import CrdController
from trainmaster.devcluster.apiserver.registry.generic.decoder import decode, with_namespace
from trainmaster.devcluster.apiserver.registry.generic.event_ttl import EventTTL
from trainmaster.devcluster.apiserver.registry.generic.patch import (
    applied,
    applied_configuration,
    check_patch_type,
    decode_patched,
    parse_patch,
    patched,
)
from trainmaster.devcluster.apiserver.registry.generic.scope import AdmissionHook
from trainmaster.devcluster.apiserver.registry.generic.update import check_identity, check_uid
from trainmaster.devcluster.apiserver.registry.generic.watch import SelectionPredicate, Watch
from trainmaster.devcluster.apiserver.registry.generic.writer import Writer, object_key
from trainmaster.devcluster.apiserver.registry.options import DeleteOptions, Patch, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind, Registry
from trainmaster.devcluster.apiserver.registry.times import Clock
from trainmaster.devcluster.apiserver.resources import EVENTS, GroupResource
from trainmaster.devcluster.apiserver.selectors import FieldSelector, LabelSelector
from trainmaster.devcluster.apiserver.storage import Record, RevisionConflict, Store
from trainmaster.runtime.jsontree import JsonObject

_ATTEMPTS = 5
"""How often a write without a resource version meets another writer before it gives up; the real server's number."""

_Objects: TypeAlias = list[JsonObject]  # inside the class, `list` is a method


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Api:
    """All request semantics of the embedded cluster; one instance owns the store's contents."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        clock: Clock = _utc_now,
        chooser: random.Random | None = None,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self._watches: dict[Watch, None] = {}
        self._events = EventTTL(store, clock)
        self._writer = Writer(
            store,
            clock=clock,
            chooser=chooser or random.Random(),  # noqa: S311 - suffixes of names need no secrecy
            new_uid=new_uid,
            definitions=CrdController(store, registry, clock=clock, on_removed=self._end_watches),
        )

    @property
    def revision(self) -> int:
        """The newest revision: the resource version of a list taken now."""
        return self.store.revision

    def add_admission(self, resource: GroupResource, hook: AdmissionHook) -> None:
        """Call a hook on every creation and change of a resource; hooks run in the order in which they were added."""
        self._writer.hooks.setdefault(resource, []).append(hook)

    def admit_by(self, admission: Admission | None) -> None:
        """Let `admission` mutate and validate every write; None ends that."""
        self._writer.admission = admission

    # Reading

    def get(self, resource: GroupResource, namespace: str | None, name: str) -> JsonObject:
        """Return an object; 404 if there is none."""
        kind = self._kind(resource, "get")
        return kind.strategy.from_storage(self._record(kind, namespace, name).object)

    def list(
        self,
        resource: GroupResource,
        namespace: str | None = None,
        *,
        labels: LabelSelector | None = None,
        fields: FieldSelector | None = None,
    ) -> tuple[list[Record], int]:
        """Return the selected objects, sorted by namespace and name, and the revision of the list."""
        kind = self._kind(resource, "list")
        selection = SelectionPredicate(kind, labels, fields)
        records = self.store.list(kind.stored_as, namespace)
        strategy = kind.strategy
        if kind.storage is not None or any(record.revision < strategy.current_since for record in records):
            records = [Record(strategy.from_storage(record.object), record.revision) for record in records]
        if not selection.everything:
            records = [record for record in records if selection.matches(record.object)]
        return records, self.store.revision

    def watch(
        self,
        resource: GroupResource,
        *,
        namespace: str | None = None,
        since: int | None,
        labels: LabelSelector | None = None,
        fields: FieldSelector | None = None,
        bookmark: bool = False,
    ) -> Watch:
        """Return the stream of changes after revision `since`; None or 0 starts with the present objects.

        With `bookmark` a BOOKMARK event follows the present objects. Raises 410 Expired when the history does not
        reach back to `since`.
        """
        kind = self._kind(resource, "watch")
        watch = Watch(
            kind=kind,
            store=self.store,
            namespace=namespace,
            since=since,
            selection=SelectionPredicate(kind, labels, fields),
            bookmark=bookmark,
            on_close=lambda closed: self._watches.pop(closed, None),
        )
        self._watches[watch] = None
        return watch

    # Writing

    async def create(
        self,
        resource: GroupResource,
        obj: JsonObject,
        *,
        namespace: str | None = None,
        options: WriteOptions | None = None,
    ) -> JsonObject:
        """Create an object and return it."""
        options = options or WriteOptions()
        kind = self._kind(resource, "create")
        new = decode(kind, obj, namespace=namespace, options=options)
        if new["metadata"].get("resourceVersion") not in (None, "", "0") and not options.dry_run:
            # On a real server it is the storage that objects, which knows no reasons and no better code.
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        return await self._writer.create(kind, new, options)

    async def update(
        self,
        resource: GroupResource,
        obj: JsonObject,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        options: WriteOptions | None = None,
    ) -> JsonObject:
        """Replace an object, or the part of it that a subresource stands for, and return it."""
        options = options or WriteOptions()
        kind = self._kind(resource, "update", subresource)
        attempts = 0
        while True:
            attempts += 1
            new = decode(kind, obj, namespace=namespace, options=options)
            target = name or new["metadata"].get("name")
            if not target:
                raise errors.bad_request("name must be provided")
            record = self._record(kind, new["metadata"].get("namespace"), target)
            conditional = check_identity(kind, new, record, target)
            check_uid(kind, new, record, target)
            try:
                return await self._writer.replace(kind, new, record, subresource, options)
            except RevisionConflict as error:
                if conditional or attempts == _ATTEMPTS:
                    raise errors.modified(kind.resource, target) from error

    async def put(
        self,
        resource: GroupResource,
        obj: JsonObject,
        *,
        namespace: str | None,
        name: str,
        subresource: str | None = None,
        options: WriteOptions | None = None,
    ) -> tuple[JsonObject, bool]:
        """Replace the object of a name or, if the kind allows that, create it; returns it, and whether it is new."""
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            text = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            raise errors.bad_request(text)
        try:
            changed = await self.update(
                resource, obj, namespace=namespace, name=name, subresource=subresource, options=options
            )
        except StatusError as error:
            creates = self._kind(resource, "update").strategy.allow_create_on_update
            if error.code != 404 or subresource or not creates:
                raise
        else:
            return changed, False
        # Whatever version the client has seen, that object is gone.
        new = {**obj, "metadata": {**metadata, "resourceVersion": ""}}
        return await self.create(resource, new, namespace=namespace, options=options), True

    async def patch(
        self,
        resource: GroupResource,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        patch_type: PatchType,
        subresource: str | None = None,
        options: WriteOptions | None = None,
    ) -> tuple[JsonObject, bool]:
        """Change an object by a patch; returns it, and whether a server-side apply created it."""
        options = options or WriteOptions()
        kind = self._kind(resource, "patch", subresource)
        check_patch_type(kind, patch_type)
        parsed = parse_patch(patch, patch_type)
        if patch_type is PatchType.APPLY:
            return await self._apply(kind, namespace, name, parsed, subresource=subresource, options=options)
        for _ in range(_ATTEMPTS):
            record = self._record(kind, namespace, name)
            live = kind.strategy.from_storage(record.object)
            changed = patched(kind, live, parsed, patch_type)
            new = decode_patched(kind, changed, namespace=namespace, options=options)
            check_identity(kind, new, record, name)
            try:
                return await self._writer.replace(kind, new, record, subresource, options), False
            except RevisionConflict:
                continue
        raise errors.modified(kind.resource, name)

    async def delete(
        self, resource: GroupResource, namespace: str | None, name: str, *, options: DeleteOptions | None = None
    ) -> tuple[JsonObject, bool]:
        """Delete an object; returns its last state, and whether it is gone already."""
        kind = self._kind(resource, "delete")
        options = options or DeleteOptions()
        record = self._record(kind, namespace, name)
        if await self._writer.validate_deletion(kind, record, options):
            record = self._record(kind, namespace, name)
        return self._writer.delete(kind, record, options)

    async def delete_collection(
        self,
        resource: GroupResource,
        namespace: str | None = None,
        *,
        labels: LabelSelector | None = None,
        fields: FieldSelector | None = None,
        options: DeleteOptions | None = None,
    ) -> _Objects:
        """Delete the selected objects; returns the state in which the request found them."""
        kind = self._kind(resource, "deletecollection")
        options = options or DeleteOptions()
        found, _ = self.list(resource, namespace, labels=labels, fields=fields)
        for record in found:
            metadata = record.metadata
            key = object_key(kind, metadata.get("namespace"), metadata["name"])
            current = self.store.get(key)
            if current is not None and await self._writer.validate_deletion(kind, current, options):
                current = self.store.get(key)
            if current is not None:  # a deletion may take others with it
                self._writer.delete(kind, current, options)
        return [record.object for record in found]

    # Behind the verbs

    def _kind(self, resource: GroupResource, verb: str, subresource: str | None = None) -> Kind:
        if resource.resource == EVENTS.resource:
            self._events.sweep()
        kind = self.registry.get(resource)
        if subresource and subresource not in kind.subresources:
            raise errors.route_not_found()
        if verb not in kind.verbs:
            raise errors.method_not_allowed()
        return kind

    def _record(self, kind: Kind, namespace: str | None, name: str) -> Record:
        record = self.store.get(object_key(kind, namespace, name))
        if record is None:
            raise errors.not_found(kind.resource, name)
        return record

    async def _apply(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        configuration: JsonObject,
        *,
        subresource: str | None,
        options: WriteOptions,
    ) -> tuple[JsonObject, bool]:
        wanted = applied_configuration(
            kind, configuration, namespace=namespace, name=name, subresource=subresource, options=options
        )
        for _ in range(_ATTEMPTS):
            record = self.store.get(object_key(kind, namespace, name))
            live = None if record is None else kind.strategy.from_storage(record.object)
            merged = applied(kind, live, wanted, subresource=subresource, options=options, now=self.clock())
            try:
                if record is None:
                    # Nothing but what was decoded as the configuration, of which it is a copy, and its managedFields.
                    new = with_namespace(kind, merged, namespace=namespace, options=options)
                    return await self._writer.create(kind, new, options, is_applied=True), True
                new = decode(kind, merged, namespace=namespace, options=options)
                return await self._writer.replace(kind, new, record, subresource, options, is_applied=True), False
            except RevisionConflict:
                continue
            except StatusError as error:
                # Somebody else created the object meanwhile: the next attempt merges into it.
                if record is None and error.reason == "AlreadyExists":
                    continue
                raise
        raise errors.modified(kind.resource, name)

    def _end_watches(self, resource: GroupResource) -> None:
        for watch in [watch for watch in self._watches if watch.kind.resource == resource]:
            watch.close()
