"""Checking: whether a write meets the object and the namespace that it is meant for."""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.resources import NAMESPACES
from trainmaster.devcluster.apiserver.storage import ObjectKey, Record, Store
from trainmaster.runtime.jsontree import JsonObject


def check_namespace(store: Store, kind: Kind, metadata: JsonObject) -> None:
    """Refuse to create in a namespace that does not exist or goes away."""
    if not kind.namespaced:
        return
    namespace = metadata["namespace"]
    record = store.get(ObjectKey(NAMESPACES, "", namespace))
    if record is None:
        raise errors.not_found(NAMESPACES, namespace)
    if "deletionTimestamp" in record.metadata:
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise errors.forbidden(
            f"unable to create new content in namespace {namespace} because it is being terminated",
            resource=kind.resource,
            name=metadata.get("name", ""),
            causes=[cause],
        )


def check_identity(kind: Kind, new: JsonObject, record: Record, name: str) -> bool:
    """Check that a new object is a version of the recorded one; returns whether the client named the version."""
    metadata = new["metadata"]
    given = metadata.get("name")
    if given and given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    metadata["name"] = name
    uid = metadata.get("uid")
    if uid and uid != record.metadata["uid"]:
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.metadata['uid']}"
        raise errors.conflict(kind.resource, name, text)
    version = metadata.get("resourceVersion")
    if version in (None, "", "0"):
        if kind.custom or not kind.strategy.unconditional_update:
            missing = FieldError("metadata.resourceVersion", "Invalid", 0, "must be specified for an update")
            raise errors.invalid(kind.group, kind.kind, name, [missing])
        return False
    if version != str(record.revision):
        raise errors.modified(kind.resource, name)
    return True
