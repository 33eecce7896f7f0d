"""`Schema`: a structural schema with the operations that the API server performs by it.

The schemas of built-in kinds come from OpenAPI definitions in the generated `definitions.json`, read at first use.

Pruning: fields that a schema does not describe leave the object.

- Under `x-kubernetes-preserve-unknown-fields` unknown fields stay, and described ones are still pruned inside.
- At the root and in embedded resources apiVersion, kind and metadata stay as they are, whatever the schema says.
- Lists keep all their elements: only fields are pruned.

Defaulting: absent fields get the values that their schema gives.

- Only what is present is entered: an absent object is not created for the sake of the defaults inside it, unless it
  has a default itself, which is then defaulted in turn.
- A null where the schema allows none counts as absent: it goes first, then the default comes.
- Values that are given are never changed.

Canonical forms: values of built-in kinds that the API server prints in one way only, however they were written.

- Quantities: 0.5 and "0.5" are "500m", "1024Mi" is "1Gi".
- Times are in UTC, with whole seconds; those of leases and events have microseconds, and must be sent with them.
- Custom resources keep what was written: their schemas know no such types.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final

import orjson

from trainmaster.devcluster.apiserver.errors import FieldError, quote
from trainmaster.devcluster.apiserver.schema import validation
from trainmaster.devcluster.apiserver.schema.structural import ABSENT, Node
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.quantity import QuantityError, canonical

RELEASE: Final = "v1.36.0"
"""The release of Kubernetes that the definitions of built-in kinds are of, and that the server says it is.

Clients derive from it what they may ask for. To change it, run `hack/generate_schemas.py` and compare the server
with recorded answers of that release.
"""

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_SIX_DIGITS = re.compile(r"\.[0-9]{6}")


def canonicalize(node: Node, value: Any, path: str = "") -> None:
    """Rewrite an object or a list in place; raises `ValueError`, with the path, for a quantity that is none.

    An integer has one form as well, which the decoder of the API server insists on: 3.0 is none.
    """
    if node.untyped:
        return
    if isinstance(value, dict):
        for name, field in value.items():
            child = node.child(name)
            here = f"{path}.{name}" if path else name
            if isinstance(field, dict | list):
                canonicalize(child, field, here)
            elif child.definition:
                value[name] = _printed(child.definition, field, here)
            elif isinstance(field, float) and child.types == ("integer",):
                raise ValueError(f"{here}: {field} is no integer; write it without a fraction")
    elif isinstance(value, list):
        items = node.items()
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                canonicalize(items, item, f"{path}[{index}]")


def _printed(definition: str, value: Any, path: str) -> Any:
    if definition == _QUANTITY:
        try:
            return canonical(value)
        except QuantityError as error:
            raise ValueError(f"{path}: {error}") from error
    if definition in (_TIME, _MICRO_TIME) and isinstance(value, str):
        if definition == _MICRO_TIME:
            _check_micro_time(value)
        moment = datetime.fromisoformat(value).astimezone(UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if definition == _MICRO_TIME else "%Y-%m-%dT%H:%M:%SZ")
    return value


def _check_micro_time(text: str) -> None:
    """Raise `ValueError`, in the words of Go, unless there are six digits behind the second."""
    rest = text[len("2006-01-02T15:04:05") :]
    unread, layout = (rest[len(".000000") :], "Z07:00") if _SIX_DIGITS.match(rest) else (rest, ".000000")
    if layout == ".000000" or unread[:1].isdecimal():
        shown = f'{quote(text)} as "2006-01-02T15:04:05.000000Z07:00"'
        raise ValueError(f"parsing time {shown}: cannot parse {quote(unread)} as {quote(layout)}")


RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(node: Node, obj: JsonObject) -> list[str]:
    """Remove unknown fields from a whole object in place; returns their paths (`spec.bogus`), sorted."""
    unknown: list[str] = []
    _prune_object(node, obj, "", unknown, is_resource=True)
    return sorted(unknown)


def _prune(node: Node, value: Any, path: str, unknown: list[str]) -> None:
    if node.untyped:
        return
    if isinstance(value, dict):
        _prune_object(node, value, path, unknown, is_resource=node.embedded_resource)
    elif isinstance(value, list):
        items = node.items()
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                _prune(items, item, f"{path}[{index}]", unknown)


def _prune_object(node: Node, obj: JsonObject, path: str, unknown: list[str], *, is_resource: bool) -> None:
    for name in list(obj):
        if is_resource and name in RESOURCE_FIELDS:
            continue
        here = f"{path}.{name}" if path else name
        if not node.describes(name):
            unknown.append(here)
            del obj[name]
        elif isinstance(obj[name], dict | list):
            _prune(node.child(name), obj[name], here, unknown)


def default(node: Node, value: Any) -> None:
    """Fill the defaults of an object or a list in place."""
    if node.untyped:
        return
    if isinstance(value, dict):
        for name in [name for name, field in value.items() if field is None]:
            if not _accepts_null(node, name):
                del value[name]
        for name, given in node.defaults().items():
            if name not in value:
                value[name] = copy_tree(given)
        for name, field in value.items():
            if isinstance(field, dict | list):
                default(node.child(name), field)
    elif isinstance(value, list):
        items = node.items()
        for index, item in enumerate(value):
            if item is None and not items.nullable and items.default_value is not ABSENT:
                value[index] = copy_tree(items.default_value)
            default(items, value[index])


def _accepts_null(node: Node, name: str) -> bool:
    child = node.child(name)
    return child.nullable or not (child.types or child.properties)


class Schema(Node):
    """A structural schema. The root describes a whole object, every other node a part of it."""

    __slots__ = ()

    def prune(self, obj: JsonObject) -> list[str]:
        """Remove unknown fields in place, metadata apart; returns their sorted paths (`spec.bogus`)."""
        return prune(self, obj)

    def default(self, obj: JsonObject) -> None:
        """Drop nulls where none is allowed and fill in defaults, in place."""
        default(self, obj)

    def canonicalize(self, obj: JsonObject) -> None:
        """Rewrite quantities and times as the server prints them, in place; raises `ValueError` for what is neither."""
        canonicalize(self, obj)

    def validate(self, obj: Any, path: str = "") -> list[FieldError]:
        """Check a value and everything in it; `path` is where it stands (`spec.x`). Returns what is wrong with it."""
        return validation.validate(self, obj, path)


@functools.cache
def builtin_schema(definition_name: str) -> Schema:
    """Return the schema of a built-in type (`io.k8s.api.core.v1.Pod`); raises `ValueError` where there is none."""
    return Schema.compile({"$ref": definition_name}, _definitions())


@functools.cache
def _definitions() -> dict[str, JsonObject]:
    file = resources.files(__package__).joinpath("definitions.json")
    loaded: dict[str, JsonObject] = orjson.loads(file.read_bytes())
    return loaded
