"""Before a change (kube-apiserver's rest.BeforeUpdate): from a decoded object to one that may replace the old one.

The new object is the private copy of one request; the old one is shared and is not changed.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.generic.scope import RequestScope, set_defaults, validate_object
from trainmaster.devcluster.apiserver.registry.objectmeta import (
    fill_system_fields,
    restore_system_fields,
    validate_object_meta,
    validate_object_meta_update,
)
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import restore
from trainmaster.devcluster.apiserver.resources import NAMESPACES
from trainmaster.devcluster.apiserver.storage import ObjectKey, Record, Store
from trainmaster.runtime.jsontree import JsonObject

_ENTRY_FIELDS = {"manager", "operation", "apiVersion", "fieldsV1"}
_GENERAL = (None, "", "status", "scale", "finalize")
"""The endpoints that many kinds have; what others do the strategy of the kind knows."""


async def before_update(
    scope: RequestScope, new: JsonObject, old: JsonObject, *, subresource: str | None, is_applied: bool
) -> JsonObject:
    """Return an object that is ready to replace the old one, or the old one itself if nothing changes."""
    kind, strategy = scope.kind, scope.kind.strategy
    set_defaults(kind, new)
    new = await scope.mutate(new, old, subresource or "")
    if not subresource:
        new = await scope.run_hooks("UPDATE", new, old)
    # Only after this may the new object share parts with the old one: defaults and hooks write in place.
    new = _limited(kind, new, old, subresource)
    if subresource not in ("status", "finalize") and strategy.has_generation and strategy.is_new_generation(new, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    metadata = new["metadata"]
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    problems = _metadata_problems(kind, metadata, old["metadata"])
    problems += _validate(kind, new, old, subresource)
    problems += scope.validate_rules(new, old, problems)
    if not (problems and kind.custom):  # only objects of the right shape can be compared
        if not subresource:
            problems += strategy.validate_update(new, old)
        elif subresource not in _GENERAL:
            problems += strategy.validate_subresource_update(new, old, subresource)
    if problems:
        raise errors.invalid(kind.stored_as.group, kind.kind, metadata["name"], problems)
    if not subresource:
        scope.warn(strategy.warnings_on_update(new, old))
    if not is_applied:
        if subresource or not _is_edit(metadata.get("managedFields")):
            restore(metadata, old["metadata"], "managedFields")
        if _same(new, old):
            return old
        new = scope.track(old, new, subresource or "")
    return old if _same(new, old) else new


def check_identity(kind: Kind, new: JsonObject, record: Record, name: str) -> bool:
    """Check that a new object is a version of the recorded one; returns whether the client named the version."""
    metadata = new["metadata"]
    given = metadata.get("name")
    if not given:
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    version = metadata.get("resourceVersion")
    if version in (None, "", "0"):
        if kind.custom or not kind.strategy.allow_unconditional_update:
            missing = FieldError("metadata.resourceVersion", "Invalid", 0, "must be specified for an update")
            raise errors.invalid(kind.group, kind.kind, name, [missing])
        return False
    if version != str(record.revision):
        raise errors.modified(kind.resource, name)
    return True


def check_uid(kind: Kind, new: JsonObject, record: Record, name: str) -> None:
    """Check that a new object is not of another uid than the recorded one, as a client asks by naming it."""
    metadata = new["metadata"]
    uid = metadata.get("uid")
    if uid and uid != record.metadata["uid"]:
        where = "/".join(part for part in ("", kind.plural, metadata.get("namespace"), name) if part is not None)
        text = (
            f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.metadata['uid']}"
        )
        raise errors.conflict(kind.resource, name, text)


def _limited(kind: Kind, new: JsonObject, old: JsonObject, subresource: str | None) -> JsonObject:
    """Undo what this endpoint may not change."""
    metadata = new["metadata"]
    match subresource:
        case None | "":
            restore_system_fields(metadata, old["metadata"])
            if kind.has_status:
                restore(new, old, "status")
            kind.strategy.prepare_for_update(new, old)
            return new
        case "finalize":
            # Only the content controller's finalizers of a namespace are written here.
            spec = {**old.get("spec", {}), "finalizers": new.get("spec", {}).get("finalizers", [])}
            return {**old, "spec": spec, "metadata": dict(old["metadata"])}
        case "scale":
            restore_system_fields(metadata, old["metadata"])
            return new  # the old object with another number in it, see `scale`
    if subresource not in _GENERAL:
        return kind.strategy.limit_to_subresource(new, old, subresource)
    restore_system_fields(metadata, old["metadata"])
    if not kind.custom:
        kind.strategy.prepare_for_status_update(new, old)
        return new
    kept = dict(old["metadata"])
    restore(kept, metadata, "managedFields")
    limited = {**old, "metadata": kept}
    restore(limited, new, "status")
    return limited


def _metadata_problems(kind: Kind, metadata: JsonObject, old: JsonObject) -> list[FieldError]:
    """Validate metadata as often as the real server does: for all kinds alike, and again for a built-in kind."""
    changes, rules = validate_object_meta_update(metadata, old), validate_object_meta(metadata, kind)
    return changes + rules if kind.custom else 2 * changes + 4 * rules


def _validate(kind: Kind, new: JsonObject, old: JsonObject, subresource: str | None) -> list[FieldError]:
    """Validate a change: what was wrong with a custom resource before, and is left alone, does not fail an update."""
    if subresource == "status" and not (kind.custom or kind.strategy.required_by_schema):
        return kind.strategy.validate_status(new)  # the rest must not hold it up if its rules became stricter
    check = _validate_status if kind.custom and subresource == "status" else validate_object
    problems = check(kind, new)
    if problems and kind.custom:
        before = check(kind, old)
        problems = [problem for problem in problems if problem not in before]
    return problems


def _validate_status(kind: Kind, obj: JsonObject) -> list[FieldError]:
    """Validate the status of a custom resource by itself: texts name paths in it, `field` those in the object."""
    if kind.schema is None or "status" not in obj:
        return []
    problems = kind.schema.child("status").validate(obj["status"])
    return [replace(each, field=f"status.{each.field}" if each.field else "status") for each in problems]


def _is_edit(entries: list[JsonObject] | None) -> bool:
    """Return whether a client's managedFields count: none and `[{}]` forget all managers, incomplete ones do not."""
    if entries is None:
        return False
    return entries == [{}] or all(entry.keys() >= _ENTRY_FIELDS for entry in entries)


def _same(new: JsonObject, old: JsonObject) -> bool:
    # Python takes 1, 1.0 and true for equal, JSON does not; the encoded forms decide, but only when they have to.
    if new != old:
        return False
    return orjson.dumps(new, option=orjson.OPT_SORT_KEYS) == orjson.dumps(old, option=orjson.OPT_SORT_KEYS)


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
