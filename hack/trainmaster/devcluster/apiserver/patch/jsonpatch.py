"""JSON Patch, RFC 6902: a list of operations, carried out in order on a copy of the document.

- A patch with any operation that fails changes nothing and raises `PatchError`.
- The size of a patch is bounded, and so is what its `copy` operations may add up to, because a short list of copies can
  double a document as often as it likes.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from trainmaster.devcluster.apiserver.patch.mergepatch import PatchError, PatchTooLarge
from trainmaster.runtime.jsontree import JsonObject, copy_tree

MAX_OPERATIONS = 10_000  # the limit of the Kubernetes API server
MAX_COPIED_BYTES = 3 * 1024 * 1024  # the limit of the Kubernetes API server for a request body, and for copies

_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


def json_patch(doc: JsonObject, ops: Any) -> JsonObject:
    """Return the document with all operations carried out."""
    if not isinstance(ops, list):
        raise PatchError("a JSON patch must be a list of operations such as [{'op': 'add', 'path': '/a', 'value': 1}]")
    if len(ops) > MAX_OPERATIONS:
        raise PatchTooLarge(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(ops)}")
    document = _Document(copy_tree(doc))
    for operation in ops:
        document.perform(operation)
    if not isinstance(document.root, dict):
        raise PatchError("the patch replaced the object by something that is not an object")
    return document.root


class _Document:
    """A document while it is being patched; owned by one call of `json_patch`."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._copied = 0

    def perform(self, operation: Any) -> None:
        """Carry out one operation."""
        if not isinstance(operation, dict):
            raise PatchError(f"a patch operation must be an object, not {_shown(operation)}")
        path = _member(operation, "path")
        match _member(operation, "op"):
            case "add":
                self._add(path, _value(operation), "add")
            case "remove":
                self._remove(path, "remove")
            case "replace":
                self._replace(path, _value(operation))
            case "move":
                source = _member(operation, "from")
                if path.startswith(f"{source}/"):
                    raise PatchError(f"move operation does not apply: {source!r} cannot move into itself, to {path!r}")
                self._add(path, self._remove(source, "move"), "move")
            case "copy":
                self._add(path, self._copy(_member(operation, "from")), "copy")
            case "test":
                if not _equal(self._get(path, "test"), _value(operation)):
                    raise PatchError(f"testing value {path} failed: test failed")
            case unknown:
                raise PatchError(f"Unexpected kind: {unknown}: use add, remove, replace, move, copy or test")

    def _add(self, path: str, value: Any, verb: str) -> None:
        if path == "":
            self.root = value
            return
        container, key = self._locate(path, verb)
        if isinstance(container, list):
            index = len(container) if key == "-" else _index(key, len(container) + 1, path, verb)
            container.insert(index, value)
        else:
            container[key] = value

    def _remove(self, path: str, verb: str) -> Any:
        if path == "":
            raise PatchError(f"{verb} operation does not apply: the whole object cannot be removed; delete it instead")
        container, key = self._locate(path, verb)
        if isinstance(container, list):
            return container.pop(_index(key, len(container), path, verb))
        if key not in container:
            raise PatchError(f"{verb} operation does not apply: doc is missing key: {path}: missing value")
        return container.pop(key)

    def _replace(self, path: str, value: Any) -> None:
        if path == "":
            self.root = value
            return
        container, key = self._locate(path, "replace")
        if isinstance(container, list):
            container[_index(key, len(container), path, "replace")] = value
        elif key not in container:
            raise PatchError(f"replace operation does not apply: doc is missing key: {path}: missing value")
        else:
            container[key] = value

    def _get(self, path: str, verb: str) -> Any:
        if path == "":
            return self.root
        container, key = self._locate(path, verb)
        if isinstance(container, list):
            return container[_index(key, len(container), path, verb)]
        if key not in container:
            raise PatchError(f"{verb} operation does not apply: doc is missing key: {path}: missing value")
        return container[key]

    def _copy(self, source: str) -> Any:
        value = self._get(source, "copy")
        self._copied += len(orjson.dumps(value))
        if self._copied > MAX_COPIED_BYTES:
            raise PatchTooLarge(f"the copy operations of the patch add up to more than {MAX_COPIED_BYTES} bytes")
        return copy_tree(value)

    def _locate(self, path: str, verb: str) -> tuple[Any, str]:
        """Find the object or the list that holds the last token of a path."""
        *parents, last = _tokens(path)
        node = self.root
        for token in parents:
            if isinstance(node, dict) and token in node:
                node = node[token]
            elif isinstance(node, list) and _INDEX.fullmatch(token) and int(token) < len(node):
                node = node[int(token)]
            else:
                node = None
                break
        if not isinstance(node, dict | list):
            raise PatchError(f'{verb} operation does not apply: doc is missing path: "{path}": missing value')
        return node, last


def _tokens(path: str) -> list[str]:
    if not path.startswith("/"):
        raise PatchError(f"the path {path!r} is not a JSON pointer: it must be empty or start with '/'")
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]


def _index(token: str, limit: int, path: str, verb: str) -> int:
    if not _INDEX.fullmatch(token) or int(token) >= limit:
        raise PatchError(f"error in {verb} for path: '{path}': Unable to access invalid index: {token}: invalid index")
    return int(token)


def _member(operation: JsonObject, name: str) -> str:
    value = operation.get(name)
    if not isinstance(value, str):
        raise PatchError(f"the patch operation {_shown(operation)} needs a string as its {name!r}")
    return value


def _value(operation: JsonObject) -> Any:
    if "value" not in operation:
        raise PatchError(f"the patch operation {_shown(operation)} needs a 'value'; null is one")
    return copy_tree(operation["value"])


def _equal(left: Any, right: Any) -> bool:
    """Compare JSON values: unlike in Python true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."
