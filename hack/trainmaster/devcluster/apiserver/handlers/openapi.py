"""OpenAPI v3 documents, one for each group version, with what kubectl reads in them.

Guarantees:
- every write operation declares `fieldValidation`, which makes kubectl leave validation to the server;
- schemas of custom resources are the ones of their definitions, so `kubectl explain` knows their fields;
- the address of a document holds a hash of its content: a client may keep it for ever, and sees a change at once.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from trainmaster.devcluster.apiserver.registry import Kind, Registry
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_COMPONENTS = "#/components/schemas/"

_WRITE_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
_OPERATIONS = {
    # verb: (HTTP method, name of the action, whether the path names one object)
    "list": ("get", "list", False),
    "create": ("post", "post", False),
    "deletecollection": ("delete", "deletecollection", False),
    "get": ("get", "get", True),
    "update": ("put", "put", True),
    "patch": ("patch", "patch", True),
    "delete": ("delete", "delete", True),
}


class OpenApi:
    """Builds OpenAPI documents from the registry; keeps them until the registry changes."""

    def __init__(self, registry: Registry, *, version: str) -> None:
        self._registry = registry
        self._version = version
        self._revision = -1
        self._documents: dict[str, bytes] = {}
        self._hashes: dict[str, str] = {}
        self._index = b""

    def index(self) -> bytes:
        """Return the document that lists the addresses of all others."""
        self._refresh()
        return self._index

    def document(self, path: str) -> bytes | None:
        """Return the document of a path such as `api/v1` or `apis/batch/v1`; None when it is not served."""
        self._refresh()
        return self._documents.get(path)

    def address(self, path: str) -> str:
        """Return where the document of a served path is."""
        return f"/openapi/v3/{path}?hash={self.hash(path)}"

    def hash(self, path: str) -> str:
        """Return the hash of the document of a served path."""
        self._refresh()
        return self._hashes[path]

    def _refresh(self) -> None:
        if self._revision == self._registry.revision:
            return
        kinds: dict[str, list[Kind]] = {}
        for kind in self._registry.kinds():
            kinds.setdefault(_prefix(kind), []).append(kind)
        self._documents = {prefix: orjson.dumps(self._build(members)) for prefix, members in kinds.items()}
        self._hashes = {
            prefix: hashlib.sha256(document).hexdigest().upper() for prefix, document in self._documents.items()
        }
        self._revision = self._registry.revision
        self._index = orjson.dumps({"paths": {each: {"serverRelativeURL": self.address(each)} for each in kinds}})

    def _build(self, kinds: list[Kind]) -> JsonObject:
        schemas: dict[str, JsonObject] = {}
        paths: JsonObject = {}
        for kind in kinds:
            name = kind.definition or _component_name(kind)
            _add_schema(schemas, name, kind)
            paths.update(_paths(kind, name))
        return {
            "openapi": "3.0.0",
            "info": {"title": "Trainmaster embedded cluster", "version": self._version},
            "paths": paths,
            "components": {"schemas": schemas},
        }


def _add_schema(schemas: dict[str, JsonObject], name: str, kind: Kind) -> None:
    """Add the schema of a kind and of everything that it refers to."""
    schema = copy_tree(kind.schema.raw) if kind.schema is not None else {"type": "object"}
    schema["x-kubernetes-group-version-kind"] = [_gvk(kind)]
    schemas[name] = schema
    definitions = kind.schema.definitions if kind.schema is not None else {}
    missing = _link(schema)
    while missing:
        needed = missing.pop()
        if needed not in schemas:
            schemas[needed] = copy_tree(definitions[needed])
            missing |= _link(schemas[needed])


def _link(node: Any) -> set[str]:
    """Turn references by name into references inside the document (in place); return the names."""
    names: set[str] = set()
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            names.add(reference)
            node["$ref"] = _COMPONENTS + reference
        for value in node.values():
            names |= _link(value)
    elif isinstance(node, list):
        for value in node:
            names |= _link(value)
    return names


def _prefix(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _gvk(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _component_name(kind: Kind) -> str:
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _paths(kind: Kind, component: str) -> JsonObject:
    inside = "namespaces/{namespace}/" if kind.namespaced else ""
    collection = f"/{_prefix(kind)}/{inside}{kind.plural}"
    paths: JsonObject = {}
    for verb, (method, action, named) in _OPERATIONS.items():
        if verb in kind.verbs:
            path = f"{collection}/{{name}}" if named else collection
            paths.setdefault(path, {})[method] = _operation(kind, component, action)
    return paths


def _operation(kind: Kind, component: str, action: str) -> JsonObject:
    schema = {"$ref": _COMPONENTS + component}
    operation: JsonObject = {
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind),
    }
    if action in {"post", "put", "patch"}:
        operation["parameters"] = _WRITE_PARAMETERS
        operation["requestBody"] = {"content": {"*/*": {"schema": schema}}}
    return operation
