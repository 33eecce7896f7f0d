"""Patch: what a PATCH body makes of an object, for the patch types other than server-side apply.

The live object is never changed; the result may share parts with it.
"""

from __future__ import annotations

from typing import Any

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.patch import PatchError, PatchTooLarge, json_patch, merge_patch
from trainmaster.devcluster.apiserver.registry.generic.decoder import DecodingError, decode
from trainmaster.devcluster.apiserver.registry.kind import Kind
from trainmaster.devcluster.apiserver.registry.options import Patch, PatchType, WriteOptions
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.strategicpatch import MergeError, definition, strategic_merge_patch

_MAX_OPERATIONS = 10_000
_CUSTOM = (PatchType.JSON, PatchType.MERGE, PatchType.APPLY)


def check_patch_type(kind: Kind, patch_type: PatchType) -> None:
    """Refuse a strategic merge of a custom resource: its schema says nothing about merge keys."""
    if kind.custom and patch_type not in _CUSTOM:
        raise errors.unsupported_media_type(list(_CUSTOM))


def parse_patch(patch: Patch, patch_type: PatchType) -> Any:
    """Decode a patch and check that it has the shape of its type."""
    parsed: Any = patch
    if isinstance(patch, bytes):
        try:
            parsed = orjson.loads(patch)
        except orjson.JSONDecodeError as error:
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
                    raise errors.unsupported_media_type(list(_CUSTOM))
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
