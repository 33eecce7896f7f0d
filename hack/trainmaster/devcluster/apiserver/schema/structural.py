"""One compiled node of a structural schema: what pruning, defaulting, validating and merging read.

- `$ref` is followed when a node is reached, so that recursive definitions (a schema of schemas) compile.
- Asking for a child or an element always answers: what the schema does not describe is an *untyped* node, which accepts
  everything, merges its maps field by field and replaces its lists.
- Nodes never change after they were built, apart from the cache of their children.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self, TypeAlias, cast

from trainmaster.runtime.jsontree import JsonObject

ListType: TypeAlias = Literal["atomic", "set", "map"]
MapType: TypeAlias = Literal["granular", "atomic"]

_VALUE_KEYWORDS = frozenset(
    {
        "allOf",
        "anyOf",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxLength",
        "maximum",
        "minLength",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "pattern",
    }
)

_NO_KEYWORDS = frozenset({"default", "description", "title", "x-kubernetes-preserve-unknown-fields"})
"""Those of a node that describes nothing: a value that is left as it is."""

_PLAIN: Mapping[tuple[str, ...], type] = {("string",): str, ("boolean",): bool}

ABSENT: Final = object()
"""What `Node.default_value` holds where a schema gives no default; null is a value like any other."""


class Node:
    """One node of a schema. Build the root with `compile`, reach the others with `child` and `items`."""

    __slots__ = (
        "_branches",
        "_children",
        "_defaults",
        "_items",
        "_values",
        "constrained",
        "default_value",
        "definition",
        "definitions",
        "embedded_resource",
        "int_or_string",
        "list_type",
        "map_keys",
        "map_type",
        "nullable",
        "plain",
        "preserves_unknown",
        "properties",
        "raw",
        "types",
        "untyped",
    )

    def __init__(self, raw: JsonObject, definitions: Mapping[str, JsonObject]) -> None:
        self.raw = raw
        self.definition = ""
        """The name of the definition that a `$ref` led to, if one did."""
        self.definitions = definitions
        self._branches: dict[str, list[Self]] = {}
        self._children: dict[str, Self] = {}
        self._defaults: dict[str, Any] | None = None
        self._items: Self | None = None
        self._values: Self | None = None

        declared = raw.get("type") or ()
        names = (declared,) if isinstance(declared, str) else tuple(declared)
        self.int_or_string: bool = raw.get("x-kubernetes-int-or-string") is True or raw.get("format") == "int-or-string"
        self.types: tuple[str, ...] = tuple(name for name in names if name != "null")
        if self.int_or_string:
            self.types = ("integer", "string")
        self.nullable: bool = raw.get("nullable") is True or "null" in names
        self.properties: Mapping[str, JsonObject] = raw.get("properties") or {}
        self.embedded_resource: bool = raw.get("x-kubernetes-embedded-resource") is True
        # A custom resource must type every node that is not one of the x-kubernetes-* kinds; a built-in definition
        # without a type is arbitrary JSON.
        self.preserves_unknown: bool = (
            raw.get("x-kubernetes-preserve-unknown-fields") is True
            or raw.get("additionalProperties") is True
            or not (self.types or self.properties or "additionalProperties" in raw)
        )
        self.untyped: bool = raw.keys() <= _NO_KEYWORDS
        """Whether this says nothing about a value, nor about anything in it: nobody has to look there."""
        # Most scalars are only typed: validating looks no further at these.
        self.constrained: bool = not raw.keys().isdisjoint(_VALUE_KEYWORDS)
        self.plain: type | None = None if self.constrained else _PLAIN.get(self.types)
        """The type of the values of which nothing else is asked."""
        self.default_value: Any = raw.get("default", ABSENT)
        self.list_type: ListType = cast("ListType", raw.get("x-kubernetes-list-type", "atomic"))
        self.map_keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys", ()))
        self.map_type: MapType = cast("MapType", raw.get("x-kubernetes-map-type", "granular"))

    @classmethod
    def compile(cls, node: JsonObject, definitions: Mapping[str, JsonObject] | None = None) -> Self:
        """Compile a schema; `definitions` are what its `$ref`s name. Raises `ValueError` for an unknown `$ref`."""
        known = definitions or {}
        raw, name = _follow(node, known)
        compiled = cls(raw, known)
        compiled.definition = name
        return compiled

    def child(self, name: str) -> Self:
        """Return the node of a field of this object, or of a key of this map."""
        known = self._children.get(name)
        if known is not None:
            return known
        node = self.properties.get(name)
        if not isinstance(node, dict):
            # Not cached: the keys of a map are as many as users care to invent.
            return self._values or self.values()
        child = self._children[name] = type(self).compile(node, self.definitions)
        return child

    def defaults(self) -> Mapping[str, Any]:
        """Return the fields that have a default which is not null, with that default."""
        if self._defaults is None:
            given = {name: self.child(name).default_value for name in self.properties}
            self._defaults = {name: value for name, value in given.items() if value is not ABSENT and value is not None}
        return self._defaults

    def values(self) -> Self:
        """Return the node of the values of a map: `additionalProperties`, or an untyped node."""
        if self._values is None:
            node = self.raw.get("additionalProperties")
            self._values = type(self).compile(node if isinstance(node, dict) else {}, self.definitions)
        return self._values

    def items(self) -> Self:
        """Return the node of the elements of a list."""
        if self._items is None:
            node = self.raw.get("items")
            self._items = type(self).compile(node if isinstance(node, dict) else {}, self.definitions)
        return self._items

    def branches(self, keyword: Literal["allOf", "anyOf", "oneOf"]) -> list[Self]:
        """Return the alternatives under `allOf`, `anyOf` or `oneOf`."""
        if keyword not in self.raw:
            return []
        if keyword not in self._branches:
            nodes = self.raw[keyword] or ()
            self._branches[keyword] = [type(self).compile(node, self.definitions) for node in nodes]
        return self._branches[keyword]

    def negation(self) -> Self | None:
        """Return the schema under `not`, which a value must fail."""
        node = self.raw.get("not")
        return type(self).compile(node, self.definitions) if isinstance(node, dict) else None

    def declares(self, name: str) -> bool:
        """Return whether a field of this name is described by name, not merely allowed as a key of a map."""
        return name in self.properties

    def describes(self, name: str) -> bool:
        """Return whether pruning keeps a field of this name."""
        return (
            name in self.properties or self.preserves_unknown or isinstance(self.raw.get("additionalProperties"), dict)
        )


def _follow(node: JsonObject, definitions: Mapping[str, JsonObject]) -> tuple[JsonObject, str]:
    """Replace a reference by what it names, and return the name, too.

    Keywords that stand beside a reference (a default, a list type) win.
    """
    seen: set[str] = set()
    name = ""
    while (reference := _reference(node)) is not None:
        name = reference.rsplit("/", 1)[-1]
        if name in seen or name not in definitions:
            reason = "refers to itself" if name in seen else "is not among the definitions"
            raise ValueError(f"schema definition {name!r} {reason}: regenerate definitions.json or correct the $ref")
        seen.add(name)
        beside = {key: value for key, value in node.items() if key != "$ref" and not _wraps_reference(key, value)}
        node = {**definitions[name], **beside}
    return node, name


def _reference(node: JsonObject) -> str | None:
    if "$ref" in node:
        return str(node["$ref"])
    # OpenAPI 3.0 allows nothing beside a $ref, so Kubernetes wraps it: {"allOf": [{"$ref": ...}], "default": {}}.
    wrapped = node.get("allOf")
    if _wraps_reference("allOf", wrapped):
        return str(cast("list[JsonObject]", wrapped)[0]["$ref"])
    return None


def _wraps_reference(key: str, value: Any) -> bool:
    return key == "allOf" and isinstance(value, list) and len(value) == 1 and value[0].keys() == {"$ref"}
