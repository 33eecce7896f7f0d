"""The graph of owners and dependents: who exists, by uid, and who depends on whom. The store feeds it."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.runtime.jsontree import JsonObject


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
