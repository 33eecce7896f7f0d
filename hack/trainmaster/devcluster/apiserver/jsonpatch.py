"""Patches that need no schema: JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386).

- Both return a new document and leave what they were given untouched. A patch that cannot be carried out raises
  `PatchError`, in the words of the API server; nothing is ever applied halfway.
- In a merge patch objects merge, null removes, everything else replaces.
- The size of a JSON patch is bounded, and so is what its `copy` operations may add up to, because a short list of
  copies can double a document as often as it likes.
"""

from __future__ import annotations

import re
from typing import Any

import jsonpatch
import orjson
from jsonpointer import JsonPointerException, resolve_pointer, unescape

from trainmaster.runtime.jsontext import is_too_deep, too_deep
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


MAX_OPERATIONS = 10_000  # the limit of the Kubernetes API server
MAX_COPIED_BYTES = 3 * 1024 * 1024  # the limit of the Kubernetes API server for a request body, and for copies

_TILDE = re.compile("~(?![01])")
_KINDS = ("add", "remove", "replace", "move", "copy", "test")


def json_patch(doc: JsonObject, ops: Any) -> JsonObject:
    """Return the document with all operations carried out."""
    if not isinstance(ops, list):
        raise PatchError("a JSON patch must be a list of operations such as [{'op': 'add', 'path': '/a', 'value': 1}]")
    if len(ops) > MAX_OPERATIONS:
        raise PatchTooLarge(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(ops)}")
    root: Any = copy_tree(doc)
    copied = 0
    for operation in ops:
        _check(operation)
        if operation["op"] in ("move", "copy"):
            value = _resolve(root, operation["from"], operation["op"])
            if operation["op"] == "copy":
                _refuse_depth(value, f"the value at {operation['from']}")
                copied += len(orjson.dumps(value))
                if copied > MAX_COPIED_BYTES:
                    raise PatchTooLarge(
                        f"the copy operations of the patch add up to more than {MAX_COPIED_BYTES} bytes"
                    )
        root = _perform(root, operation)
    if not isinstance(root, dict):
        raise PatchError("the patch replaced the object by something that is not an object")
    _refuse_depth(root, "what the patch leaves")
    return root


def _refuse_depth(value: Any, what: str) -> None:
    """Refuse what no decoder would take: every operation can nest a document deeper."""
    if is_too_deep(value):
        raise PatchError(f"{what} cannot be stored: {too_deep()}")


def _perform(root: Any, operation: JsonObject) -> Any:
    kind, path = operation["op"], operation["path"]
    if kind == "replace" and isinstance(_container(root, path), dict):
        # The API server adds a key that a map has not; only the elements of a list must be there.
        operation = {**operation, "op": "add"}
    pointers = {name: _escaped(operation[name]) for name in ("path", "from") if isinstance(operation.get(name), str)}
    try:
        return jsonpatch.JsonPatch([{**operation, **pointers}]).apply(root, in_place=True)
    except jsonpatch.JsonPatchTestFailed as error:
        _resolve(root, path, kind)
        raise PatchError(f"testing value {path} failed: test failed") from error
    except (jsonpatch.JsonPatchException, JsonPointerException) as error:
        raise _unresolved(root, path, kind) from error


def _resolve(root: Any, path: str, kind: str) -> Any:
    """Return the value at a path."""
    try:
        value = resolve_pointer(root, _escaped(path))
    except JsonPointerException as error:
        raise _unresolved(root, path, kind) from error
    if path.endswith("/-") and isinstance(resolve_pointer(root, _escaped(path[:-2])), list):
        raise _unresolved(root, path, kind)
    return value


def _unresolved(root: Any, path: str, kind: str) -> PatchError:
    """Return the error about a path that leads nowhere."""
    last = path.rpartition("/")[2]
    container = _container(root, path)
    if isinstance(container, list):
        return PatchError(
            f"error in {kind} for path: '{path}': Unable to access invalid index: {unescape(last)}: invalid index"
        )
    if isinstance(container, dict):
        return PatchError(f"{kind} operation does not apply: doc is missing key: {path}: missing value")
    return PatchError(f'{kind} operation does not apply: doc is missing path: "{path}": missing value')


def _container(root: Any, path: str) -> Any:
    """Return the value that holds the one at a path, or would; None where there is none."""
    above, slash, _ = path.rpartition("/")
    try:
        return resolve_pointer(root, _escaped(above)) if slash else None
    except JsonPointerException:
        return None


def _check(operation: Any) -> None:
    """Check what an operation consists of."""
    if not isinstance(operation, dict):
        raise PatchError(f"a patch operation must be an object, not {_shown(operation)}")
    kind = operation.get("op")
    pointers = ("path", "from") if kind in ("move", "copy") else ("path",)
    for name in (*pointers, "op"):
        if not isinstance(operation.get(name), str):
            raise PatchError(f"the patch operation {_shown(operation)} needs a string as its {name!r}")
    if kind not in _KINDS:
        raise PatchError(f"Unexpected kind: {kind}: use add, remove, replace, move, copy or test")
    if kind in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"the patch operation {_shown(operation)} needs a 'value'; null is one")
    for name in pointers:
        if (pointer := operation[name]) and not pointer.startswith("/"):
            raise PatchError(f"the path {pointer!r} is not a JSON pointer: it must be empty or start with '/'")
    path = operation["path"]
    if kind == "move" and path.startswith(f"{operation['from']}/"):
        raise PatchError(f"move operation does not apply: {operation['from']!r} cannot move into itself, to {path!r}")
    if (kind == "remove" and not path) or (kind == "move" and not operation["from"]):
        raise PatchError(f"{kind} operation does not apply: the whole object cannot be removed; delete it instead")


def _escaped(pointer: str) -> str:
    """Escape every tilde: the API server takes one that means nothing as it stands, the library does not."""
    return _TILDE.sub("~0", pointer)


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."
