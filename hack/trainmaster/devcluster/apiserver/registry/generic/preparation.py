"""Preparing: everything that happens to an object between decoding and storing.

The object that goes in is the private copy of one request; the old one is shared and is not changed. Admission is the
only place that waits.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.request import Admission, write_request
from trainmaster.devcluster.apiserver.apply import track_update
from trainmaster.devcluster.apiserver.errors import FieldError, StatusError
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic.decoding import check_types, decode, prune
from trainmaster.devcluster.apiserver.registry.generic.object_metadata import (
    carry_over,
    stamp_created,
    validate_metadata_update,
)
from trainmaster.devcluster.apiserver.registry.generic.options import WriteOptions
from trainmaster.devcluster.apiserver.registry.metadata import validate_metadata
from trainmaster.devcluster.apiserver.registry.strategies.base import immutable, restore
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontree import JsonObject

Operation: TypeAlias = Literal["CREATE", "UPDATE"]

AdmissionHook: TypeAlias = Callable[[Operation, JsonObject, JsonObject | None], JsonObject | Awaitable[JsonObject]]
"""Defaults and validates in place of a webhook: gets the operation, the new and the old object, returns the new one.

It may change the new object, never the old one, and refuses by raising a StatusError.
"""

_ENTRY_FIELDS = {"manager", "operation", "apiVersion", "fieldsV1"}

_DESIRED = (None, "", "scale")
"""The endpoints that write the desired state."""

_SHAPELESS = frozenset({"NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"})
_RULES_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)

_UNTYPED = Schema.compile({"type": "object", "x-kubernetes-preserve-unknown-fields": True})


@dataclass(frozen=True, slots=True)
class Preparation:
    """What the steps of one request have in common."""

    kind: Kind
    options: WriteOptions
    now: datetime
    hooks: Sequence[AdmissionHook]
    admission: Admission | None = None

    @property
    def schema(self) -> Schema:
        """The schema by which fields are owned."""
        return self.kind.schema or _UNTYPED


async def prepare_new(
    preparation: Preparation, obj: JsonObject, *, uid: str, is_applied: bool, name_is_generated: bool = False
) -> JsonObject:
    """Return an object that is ready to be stored for the first time; raises a StatusError if it breaks a rule."""
    kind = preparation.kind
    _default(kind, obj)
    # A generated name is given after the mutation, so nobody learns of it before.
    name = obj["metadata"].pop("name") if name_is_generated else None
    obj = await _mutate(preparation, obj, None, "")
    if name is not None and not obj["metadata"].get("name"):
        obj["metadata"]["name"] = name
    obj = await _admit(preparation, "CREATE", obj, None)
    metadata = obj["metadata"]
    stamp_created(metadata, kind, uid=uid, now=preparation.now)
    if kind.custom and kind.has_status:
        obj.pop("status", None)
    problems = validate_metadata(metadata, kind)
    if metadata.get("name"):  # strategies rely on it
        kind.strategy.prepare_create(obj)
        problems += _schema_errors(kind, obj) + kind.strategy.validate(obj)
        problems += _rule_errors(preparation, obj, None, problems)
    if problems:
        raise errors.invalid(kind.group, kind.kind, metadata.get("name", ""), problems)
    if is_applied:
        return obj
    metadata.pop("managedFields", None)
    if not kind.has_status or "status" not in obj:
        return _tracked(preparation, None, obj, "")
    # The first status is the server's own: the creator does not come to manage it.
    tracked = _tracked(preparation, None, {field: value for field, value in obj.items() if field != "status"}, "")
    return {**tracked, "status": obj["status"]}


async def prepare_change(
    preparation: Preparation, new: JsonObject, old: JsonObject, *, subresource: str | None, is_applied: bool
) -> JsonObject:
    """Return an object that is ready to replace the old one, or the old one itself if nothing changes."""
    kind, strategy = preparation.kind, preparation.kind.strategy
    _default(kind, new)
    new = await _mutate(preparation, new, old, subresource or "")
    if not subresource:
        new = await _admit(preparation, "UPDATE", new, old)
    # Only after this may the new object share parts with the old one: defaults and hooks write in place.
    new = _limited(kind, new, old, subresource)
    if subresource in _DESIRED and strategy.has_generation and strategy.is_new_generation(new, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    metadata = new["metadata"]
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    problems = validate_metadata_update(metadata, old["metadata"]) + validate_metadata(metadata, kind)
    problems += _new_problems(kind, new, old)
    problems += _rule_errors(preparation, new, old, problems)
    if not problems and not subresource:  # only sound objects can be compared
        problems = strategy.validate_update(new, old)
    elif not problems and subresource == "status":
        problems = strategy.validate_status_update(new, old)
    if problems:
        raise errors.invalid(kind.group, kind.kind, metadata["name"], problems)
    if not is_applied:
        if not _is_edit(metadata.get("managedFields")):
            restore(metadata, old["metadata"], "managedFields")
        if _same(new, old):
            return old
        new = _tracked(preparation, old, new, subresource or "")
    return old if _same(new, old) else new


async def judge(preparation: Preparation, obj: JsonObject, old: JsonObject | None, *, subresource: str = "") -> None:
    """Have a prepared object validated from outside; raises a StatusError if it is refused."""
    admission, kind = preparation.admission, preparation.kind
    operation: Operation = "CREATE" if old is None else "UPDATE"
    if admission is not None and admission.concerns(kind, operation, subresource):
        request = write_request(kind, obj, old, subresource=subresource, options=preparation.options)
        await admission.validate(request, obj)


def _limited(kind: Kind, new: JsonObject, old: JsonObject, subresource: str | None) -> JsonObject:
    """Undo what this endpoint may not change."""
    metadata = new["metadata"]
    match subresource:
        case None | "":
            carry_over(metadata, old["metadata"])
            if kind.has_status:
                restore(new, old, "status")
            kind.strategy.prepare_update(new, old)
            return new
        case "finalize":
            # Only the content controller's finalizers of a namespace are written here.
            spec = {**old.get("spec", {}), "finalizers": new.get("spec", {}).get("finalizers", [])}
            return {**old, "spec": spec, "metadata": dict(old["metadata"])}
        case "scale":
            carry_over(metadata, old["metadata"])
            return new  # the old object with another number in it, see `scaling`
    carry_over(metadata, old["metadata"])
    if not kind.custom:
        kind.strategy.prepare_status(new, old)
        return new
    kept = dict(old["metadata"])
    restore(kept, metadata, "managedFields")
    limited = {**old, "metadata": kept}
    restore(limited, new, "status")
    return limited


def _default(kind: Kind, obj: JsonObject) -> None:
    if kind.schema is not None:
        kind.schema.default(obj)
    kind.strategy.default(obj)


async def _mutate(preparation: Preparation, obj: JsonObject, old: JsonObject | None, subresource: str) -> JsonObject:
    """Have an object changed from outside."""
    admission, kind = preparation.admission, preparation.kind
    operation: Operation = "CREATE" if old is None else "UPDATE"
    if admission is None or not admission.concerns(kind, operation, subresource):
        return obj
    request = write_request(kind, obj, old, subresource=subresource, options=preparation.options)
    namespace = obj["metadata"].get("namespace")

    def reshape(changed: JsonObject) -> JsonObject:
        try:
            shaped = decode(kind, changed, namespace=namespace, options=WriteOptions(field_validation="Ignore"))
        except StatusError as error:  # the fault is not the client's
            raise errors.internal(error.message) from error
        if old is not None and (changed_name := shaped["metadata"].get("name")) != old["metadata"]["name"]:
            problem = immutable("metadata.name", changed_name)
            raise errors.invalid(kind.group, kind.kind, old["metadata"]["name"], [problem])
        _default(kind, shaped)
        return shaped

    return await admission.mutate(request, obj, reshape=reshape)


async def _admit(preparation: Preparation, operation: Operation, obj: JsonObject, old: JsonObject | None) -> JsonObject:
    """Run the hooks, then bring what they returned into shape again."""
    if not preparation.hooks:
        return obj
    for hook in preparation.hooks:
        result = hook(operation, obj, old)
        obj = await result if inspect.isawaitable(result) else result
    kind = preparation.kind
    prune(kind, obj, options=WriteOptions(field_validation="Ignore"))
    if not kind.custom:
        check_types(kind, obj)
    _default(kind, obj)
    return obj


def _schema_errors(kind: Kind, obj: JsonObject) -> list[FieldError]:
    return kind.schema.validate(obj) if kind.schema is not None else []


def _new_problems(kind: Kind, new: JsonObject, old: JsonObject) -> list[FieldError]:
    """Validate a change: what was wrong with a custom resource before, and is left alone, does not fail an update."""
    problems = _schema_errors(kind, new) + kind.strategy.validate(new)
    if problems and kind.custom:
        before = _schema_errors(kind, old)
        problems = [problem for problem in problems if problem not in before]
    return problems


def _rule_errors(
    preparation: Preparation, new: JsonObject, old: JsonObject | None, known: Sequence[FieldError]
) -> list[FieldError]:
    """Check the rules of a custom resource; they rely on the object having the shape that its schema asks for."""
    rules = preparation.kind.rules
    if not rules:
        return []
    if any(problem.kind in _SHAPELESS for problem in known):
        return [FieldError("", "Invalid", None, _RULES_UNCHECKED)]
    verdict = rules.check(new, old)
    preparation.options.warnings.extend(verdict.warnings)
    return verdict.errors


def _is_edit(entries: list[JsonObject] | None) -> bool:
    """Return whether a client's managedFields count: `[{}]` forgets all managers, incomplete ones do not count."""
    if entries == [{}]:
        return True
    return bool(entries) and all(entry.keys() >= _ENTRY_FIELDS for entry in entries or ())


def _same(new: JsonObject, old: JsonObject) -> bool:
    # Python takes 1, 1.0 and true for equal, JSON does not; the encoded forms decide, but only when they have to.
    if new != old:
        return False
    return orjson.dumps(new, option=orjson.OPT_SORT_KEYS) == orjson.dumps(old, option=orjson.OPT_SORT_KEYS)


def _tracked(preparation: Preparation, old: JsonObject | None, new: JsonObject, subresource: str) -> JsonObject:
    """Note which fields the writer manages from now on."""
    return track_update(
        old,
        new,
        manager=preparation.options.field_manager,
        schema=preparation.schema,
        api_version=preparation.kind.api_version,
        now=timestamp(preparation.now),
        subresource=subresource,
    )
