"""Patch: what a PATCH body makes of an object.

- JSON patch, merge patch and strategic merge patch: from the live object and the body to the new object. The live
  object is never changed; the result may share parts with it.
- Server-side apply: from the configuration that a manager sends to the merged object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.apply import ApplyConflict, ApplyInvalid, apply
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.jsonpatch import PatchError, PatchTooLarge, json_patch, merge_patch
from trainmaster.devcluster.apiserver.registry.generic.decoder import DecodingError, decode, decode_parts
from trainmaster.devcluster.apiserver.registry.options import Patch, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.strategicpatch import MergeError, definition, strategic_merge_patch

_MAX_OPERATIONS = 10_000
CUSTOM_PATCH_TYPES = (PatchType.JSON, PatchType.MERGE, PatchType.APPLY)


def check_patch_type(kind: Kind, patch_type: PatchType) -> None:
    """Refuse a strategic merge of a custom resource: its schema says nothing about merge keys."""
    if kind.custom and patch_type not in CUSTOM_PATCH_TYPES:
        raise errors.unsupported_media_type(list(CUSTOM_PATCH_TYPES))


def parse_patch(patch: Patch, patch_type: PatchType) -> Any:
    """Decode a patch and check that it has the shape of its type."""
    parsed: Any = patch
    if isinstance(patch, bytes):
        try:
            parsed = load_json(patch)
        except JsonError as error:
            raise errors.bad_request(f"error decoding patch: {error}") from error
    if patch_type is PatchType.JSON:
        if not isinstance(parsed, list):
            raise errors.bad_request("error decoding patch: a JSON patch is an array of operations")
        if len(parsed) > _MAX_OPERATIONS:
            raise errors.too_large(
                f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(parsed)}"
            )
    elif not isinstance(parsed, dict):
        raise errors.bad_request("error decoding patch: this type of patch is an object")
    return parsed


def decode_patched(kind: Kind, obj: JsonObject, *, namespace: str | None, options: WriteOptions) -> JsonObject:
    """Decode what a patch made of an object; if it does not fit the kind the patch is to blame."""
    try:
        return decode(kind, obj, namespace=namespace, options=options)
    except DecodingError as error:
        problem = FieldError("patch", "Invalid", orjson.dumps(obj).decode(), error.text)
        raise errors.invalid("", "", "", [problem]) from error


def patched(kind: Kind, live: JsonObject, patch: Any, patch_type: PatchType) -> JsonObject:
    """Return the object that a parsed patch makes of a live one."""
    try:
        match patch_type:
            case PatchType.JSON:
                result: Any = json_patch(live, patch)
            case PatchType.MERGE:
                result = merge_patch(live, patch)
            case _:
                if kind.definition is None:
                    raise errors.unsupported_media_type(list(CUSTOM_PATCH_TYPES))
                result = strategic_merge_patch(live, patch, definition(kind.definition))
    except PatchTooLarge as error:
        raise errors.too_large(str(error)) from error
    except PatchError as error:
        raise errors.unprocessable(str(error)) from error
    except MergeError as error:
        raise errors.bad_request(str(error)) from error
    if not isinstance(result, dict):
        raise errors.unprocessable("the patch does not leave an object")
    return result


_UNTYPED = Schema.compile({"type": "object", "x-kubernetes-preserve-unknown-fields": True})


def applied_configuration(
    kind: Kind,
    configuration: JsonObject,
    *,
    namespace: str | None,
    name: str,
    subresource: str | None,
    options: WriteOptions,
) -> JsonObject:
    """Return what a manager wants, checked and reduced to what the endpoint writes."""
    for field in ("apiVersion", "kind"):
        if not configuration.get(field):
            raise errors.bad_request(f"an applied configuration must have {field}: add it and apply again")
    try:
        # Whatever the client wants of unknown fields: what has no schema can have no owner.
        wanted = decode_parts(kind, configuration, options=replace(options, field_validation="Strict"))
    except DecodingError as error:
        problems = [f".{path}: field not declared in schema" for path in error.unknown]
        problems += [f".{misfit.field}: {misfit.detail}" for misfit in error.misfits]
        if not problems:
            raise
        raise _untyped(kind, problems, namespace=namespace, name=name) from error
    metadata = wanted["metadata"]
    if metadata.pop("managedFields", None):
        raise errors.bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
    if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    # A manager must not come to own what the endpoint does not write.
    if subresource == "status":
        wanted.pop("spec", None)
        if kind.custom:
            kept = ("name", "namespace", "uid", "resourceVersion")
            wanted["metadata"] = {field: metadata[field] for field in kept if field in metadata}
            wanted = {field: wanted[field] for field in ("apiVersion", "kind", "metadata", "status") if field in wanted}
    elif kind.has_status:
        wanted.pop("status", None)
    return wanted


def _untyped(kind: Kind, problems: Sequence[str], *, namespace: str | None, name: str) -> errors.StatusError:
    text = problems[0] if len(problems) == 1 else "errors:\n  " + "\n  ".join(problems)
    identity = f"{namespace or ''}/{name}; {kind.group}/{kind.version}, Kind={kind.kind}"
    # The real server gives this error no reason, and so no better code.
    return errors.StatusError(500, "", f"failed to create typed patch object ({identity}): {text}")


def applied(
    kind: Kind,
    live: JsonObject | None,
    wanted: JsonObject,
    *,
    subresource: str | None,
    options: WriteOptions,
    now: datetime,
) -> JsonObject:
    """Merge a configuration into the live object; 409 when it meets fields of other managers or another object."""
    name, uid, version = (wanted["metadata"].get(field) for field in ("name", "uid", "resourceVersion"))
    if live is None:
        if subresource:
            raise errors.not_found(kind.resource, name)
        if uid:
            text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise errors.conflict(kind.resource, name, text)
    elif version not in (None, "", "0", live["metadata"]["resourceVersion"]):
        raise errors.modified(kind.resource, name)
    elif uid and uid != live["metadata"]["uid"]:
        raise errors.invalid(kind.group, kind.kind, name, [errors.immutable("metadata.uid", uid)])
    try:
        return apply(
            live,
            wanted,
            manager=options.field_manager,
            force=options.force,
            schema=kind.schema or _UNTYPED,
            api_version=kind.api_version,
            now=timestamp(now),
            subresource=subresource or "",
        )
    except ApplyConflict as conflict:
        raise errors.apply_conflict(str(conflict), conflict.causes()) from conflict
    except ApplyInvalid as error:
        raise errors.bad_request(f"the configuration cannot be applied: {error}") from error
