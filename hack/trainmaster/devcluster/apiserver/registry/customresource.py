"""Custom resources: from a CustomResourceDefinition to the kind that it defines.

- The schema is completed by the ObjectMeta of the Kubernetes API, so that metadata is typed in custom resources too.
- The rules in CEL (`x-kubernetes-validations`) are compiled; one that does not compile is the definition's error.

Answered with 501: several served versions in one definition, and conversion webhooks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import orjson

from trainmaster.devcluster.apiserver.registry.jsonpath import compile_path
from trainmaster.devcluster.apiserver.registry.printers import custom_columns
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.scale import ScalePaths
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.schema import Schema, builtin_schema
from trainmaster.devcluster.apiserver.schema.cel import Rules
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def kind_of(crd: JsonObject, *, deferred: bool = False) -> Kind:
    """Return the kind that a valid definition defines; raises ValueError for schemas and paths that do not compile.

    With `deferred`, for definitions of our own, rules are compiled when they are needed first.
    """
    spec = crd["spec"]
    names = spec["names"]
    version = next(each for each in spec["versions"] if each.get("served"))
    raw = version.get("schema", {}).get("openAPIV3Schema", {})
    subresources = version.get("subresources") or {}
    has_status = "status" in subresources
    schema = _schema(raw)
    return Kind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names["singular"],
        list_kind=names["listKind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        subresources=frozenset(subresources),
        scale=_scale(subresources.get("scale")),
        custom=True,
        schema=schema,
        rules=rules_of(raw, deferred=deferred),
        strategy=CustomResourceStrategy(
            schema, has_status=has_status, current_since=int(crd["metadata"].get("resourceVersion") or 0)
        ),
        columns=custom_columns(version.get("additionalPrinterColumns", ())),
        field_labels={
            each["jsonPath"].removeprefix("."): _label(each["jsonPath"]) for each in version.get("selectableFields", ())
        },
    )


def rules_of(schema: JsonObject, *, deferred: bool = False) -> Rules:
    """Return the compiled rules of a schema, with what is wrong with them."""
    return _compiled_rules(orjson.dumps(schema), deferred)


@functools.lru_cache(maxsize=32)
def _compiled_rules(schema: bytes, deferred: bool) -> Rules:
    # A definition is looked at several times while it is created; its rules are the expensive part.
    return Rules(orjson.loads(schema), deferred=deferred)


def _scale(paths: JsonObject | None) -> ScalePaths | None:
    if paths is None:
        return None
    for field, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        if not str(paths.get(field, "")).startswith(root):
            raise ValueError(f"subresources.scale.{field}: should be a json path under {root[:-1]}")
    return ScalePaths(paths["specReplicasPath"], paths["statusReplicasPath"], paths.get("labelSelectorPath", ""))


def _schema(raw: JsonObject) -> Schema:
    properties = {
        **raw.get("properties", {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": _OBJECT_META},
    }
    return Schema.compile({**raw, "properties": properties}, _metadata_definitions())


@functools.cache
def _metadata_definitions() -> dict[str, JsonObject]:
    """Return ObjectMeta and the definitions that it refers to."""
    found: dict[str, JsonObject] = {}
    wanted = [_OBJECT_META]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = builtin_schema(name).raw
            wanted.extend(_references(found[name]))
    return found


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _references(each)


def _label(path: str) -> Any:
    find = compile_path(path)

    def value(obj: JsonObject) -> str:
        found = find(obj)
        if not found:
            return ""
        return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])

    return value


class CustomResourceStrategy(Strategy):
    """Custom resources know no more than their schema does; everything but metadata and status is desired state."""

    has_generation = True
    allow_unconditional_update = False

    def __init__(self, schema: Schema, *, has_status: bool, current_since: int) -> None:
        self._schema = schema
        self.current_since = current_since
        self._apart = frozenset({"metadata", "status"} if has_status else {"metadata"})

    def from_storage(self, obj: JsonObject) -> JsonObject:
        """Bring an object that is older than the definition into the shape of it: pruned, and with its defaults."""
        if int(obj["metadata"].get("resourceVersion") or 0) >= self.current_since:
            return obj
        shaped: JsonObject = copy_tree(obj)
        self._schema.prune(shaped)
        self._schema.default(shaped)
        return obj if shaped == obj else shaped

    def is_new_generation(self, obj: JsonObject, old: JsonObject) -> bool:
        """Return whether anything changed apart from metadata and, where it is written separately, status."""
        return any(obj.get(field) != old.get(field) for field in (obj.keys() | old.keys()) - self._apart)
