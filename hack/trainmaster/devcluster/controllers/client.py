"""Reads and deletions for controllers: an object that is not there is an answer, not an error."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions
from trainmaster.devcluster.apiserver.registry.options import Propagation
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject


def find(api: Api, key: ObjectKey) -> JsonObject | None:
    """Return the object as it is stored; None if there is none."""
    record = api.store.get(key)
    return None if record is None else record.object


async def delete(
    api: Api,
    resource: GroupResource,
    obj: JsonObject,
    *,
    propagation: Propagation = "Background",
) -> bool:
    """Delete exactly this object, not a namesake of it; tells whether there was still something to delete."""
    metadata = obj["metadata"]
    options = DeleteOptions(propagation=propagation, uid=metadata["uid"])
    try:
        await api.delete(resource, metadata.get("namespace"), metadata["name"], options=options)
    except StatusError as error:
        if error.code == 404 or (error.code == 409 and not _is_same(api, resource, obj)):
            return False
        raise
    return True


def _is_same(api: Api, resource: GroupResource, obj: JsonObject) -> bool:
    metadata = obj["metadata"]
    current = find(api, ObjectKey(resource, metadata.get("namespace", ""), metadata["name"]))
    return current is not None and current["metadata"]["uid"] == metadata["uid"]
