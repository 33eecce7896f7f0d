"""JSON Merge Patch, RFC 7386: objects merge, null removes, everything else replaces; and the errors of patches."""

from __future__ import annotations

from typing import Any

from trainmaster.runtime.jsontree import JsonObject, copy_tree


class PatchError(ValueError):
    """The patch is malformed or does not fit the document; the message says which operation failed on which path."""


class PatchTooLarge(PatchError):
    """The patch asks for more work than the server is willing to do."""


def merge_patch(doc: JsonObject, patch: Any) -> JsonObject:
    """Return the document with the patch merged into it; the result has no nulls that came from the patch."""
    if not isinstance(patch, dict):
        raise PatchError(
            "a merge patch must be a JSON object: send the fields to change, with null for those to remove"
        )
    merged: JsonObject = _merge(copy_tree(doc), patch)
    return merged


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy_tree(patch)
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result
