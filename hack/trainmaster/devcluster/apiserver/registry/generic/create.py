"""Before a creation (kube-apiserver's rest.BeforeCreate): from a decoded object to one that is ready to be stored."""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.generic.scope import RequestScope, set_defaults, validate_object
from trainmaster.devcluster.apiserver.registry.objectmeta import fill_system_fields, validate_object_meta
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.resources import NAMESPACES
from trainmaster.devcluster.apiserver.storage import ObjectKey, Store
from trainmaster.runtime.jsontree import JsonObject


async def before_create(
    scope: RequestScope, obj: JsonObject, *, uid: str, is_applied: bool, name_is_generated: bool = False
) -> JsonObject:
    """Return an object that is ready to be stored for the first time; raises a StatusError if it breaks a rule."""
    kind = scope.kind
    set_defaults(kind, obj)
    # A generated name is given after the mutation, so nobody learns of it before.
    name = obj["metadata"].pop("name") if name_is_generated else None
    obj = await scope.mutate(obj, None, "")
    if name is not None and not obj["metadata"].get("name"):
        obj["metadata"]["name"] = name
    obj = await scope.run_hooks("CREATE", obj, None)
    metadata = obj["metadata"]
    fill_system_fields(metadata, kind, uid=uid, now=scope.now)
    if kind.custom and kind.has_status:
        obj.pop("status", None)
    problems = validate_object_meta(metadata, kind)
    if metadata.get("name"):  # strategies rely on it
        kind.strategy.prepare_for_create(obj)
        problems += validate_object(kind, obj) + kind.strategy.validate_create(obj)
        problems += scope.validate_rules(obj, None, problems)
    if problems:
        raise errors.invalid(kind.stored_as.group, kind.kind, metadata.get("name", ""), problems)
    scope.warn(kind.strategy.warnings_on_create(obj))
    if is_applied:
        return obj
    metadata.pop("managedFields", None)
    if not kind.has_status or "status" not in obj:
        return scope.track(None, obj, "")
    # The first status is the server's own: the creator does not come to manage it.
    tracked = scope.track(None, {field: value for field, value in obj.items() if field != "status"}, "")
    return {**tracked, "status": obj["status"]}


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
