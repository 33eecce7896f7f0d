"""Which objects belong to a controller: it adopts orphans that its selector finds, and releases what it finds no more.

An object that is being deleted is neither adopted nor released, and an owner that is being deleted adopts nothing.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.selectors import label_selector_from_object
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.indexer import Indexer, controller_uid
from trainmaster.devcluster.controllers.objects import is_terminating, new_controller_ref
from trainmaster.runtime.jsontree import JsonObject

_ORPHAN = "orphans of "


def _owner_or_namespace(obj: JsonObject) -> str:
    return controller_uid(obj) or f"{_ORPHAN}{obj['metadata']['namespace']}"


class ControllerRefManager:
    """Knows the objects of one resource by their controllers; feed it by `ControlLoop.watch(resource, observe)`."""

    def __init__(self, api: Api, resource: GroupResource, *, options: WriteOptions) -> None:
        self._api = api
        self._resource = resource
        self._options = options
        self._objects = Indexer(_owner_or_namespace)

    def observe(self, event: Event) -> None:
        """Take in a change."""
        self._objects.observe(event)

    def of(self, owner: JsonObject) -> list[JsonObject]:
        """Return the objects that name the owner as their controller, by name."""
        return self._objects.by_index(owner["metadata"]["uid"])

    def orphans(self, namespace: str) -> list[JsonObject]:
        """Return the objects of a namespace that have no controller, by name."""
        return self._objects.by_index(f"{_ORPHAN}{namespace}")

    async def claim(self, owner: JsonObject) -> list[JsonObject]:
        """Adopt and release, and return what belongs to the owner then, by name."""
        if not is_terminating(owner):
            for orphan in self.orphans(owner["metadata"]["namespace"]):
                if is_selected(owner, orphan) and not is_terminating(orphan):
                    await self._write(orphan, [*_references(orphan), new_controller_ref(owner)])
        for mine in self.of(owner):
            if not is_selected(owner, mine) and not is_terminating(mine):
                uid = owner["metadata"]["uid"]
                await self._write(mine, [each for each in _references(mine) if each["uid"] != uid])
        return self.of(owner)

    async def _write(self, obj: JsonObject, references: list[JsonObject]) -> None:
        metadata = obj["metadata"]
        changed = {**obj, "metadata": {**metadata, "ownerReferences": references}}
        try:
            await self._api.update(self._resource, changed, options=self._options)
        except StatusError as error:
            if error.code != 404:
                raise


def _references(obj: JsonObject) -> list[JsonObject]:
    return list(obj["metadata"].get("ownerReferences") or ())


def is_selected(owner: JsonObject, obj: JsonObject) -> bool:
    """Tell whether the selector of an owner finds an object of its namespace."""
    if owner["metadata"]["namespace"] != obj["metadata"]["namespace"]:
        return False
    return label_selector_from_object(owner["spec"].get("selector")).matches(obj["metadata"].get("labels"))


def owner_key(obj: JsonObject, kind: str, resource: GroupResource) -> ObjectKey | None:
    """Return where the controller of an object lives, if it is of a kind."""
    for reference in _references(obj):
        if reference.get("controller") and reference["kind"] == kind:
            return ObjectKey(resource, obj["metadata"]["namespace"], reference["name"])
    return None
