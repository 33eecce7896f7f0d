"""Validation: what is wrong with a value, in the words of the Kubernetes API server.

- A value of the wrong type is reported once; nothing else is said about it.
- Lists of type `set` and `map` must not repeat an element or a key.
- Unknown fields are not errors here: pruning deals with them.
- Rules in CEL (`x-kubernetes-validations`) are not looked at.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from trainmaster.devcluster.apiserver.errors import FieldError, quote, too_many
from trainmaster.devcluster.apiserver.schema import formats
from trainmaster.devcluster.apiserver.schema.formats import compile_pattern
from trainmaster.devcluster.apiserver.schema.structural import Node
from trainmaster.runtime.jsontree import JsonObject

_TYPES: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_INTEGER_BITS = {"int32": 32, "int64": 64}
_FORMATS = {"boolean": "", "number": "float64", "object": ""}


def validate(node: Node, value: Any, path: str) -> list[FieldError]:
    """Check a value and everything in it."""
    errors: list[FieldError] = []
    _check(node, value, path, errors)
    return errors


def _check(node: Node, value: Any, path: str, errors: list[FieldError]) -> None:
    if node.untyped:
        return
    if value is None:
        if node.types and not node.nullable:
            errors.append(_wrong_type(path, ",".join(node.types), "null"))
        return
    found = _TYPES[type(value)]
    if node.types and found not in node.types and not _converts(found, value, node.types):
        wanted = ",".join(node.types)
        if (name := node.raw.get("format")) in _INTEGER_BITS and found in _FORMATS:
            # The server compares formats before types here, and some values have none.
            wanted, found = name, _FORMATS[found]
        errors.append(_wrong_type(path, wanted, found))
        return
    if found == "object":
        _check_object(node, value, path, errors)
    elif found == "array":
        _check_list(node, value, path, errors)
    if node.constrained:
        errors.extend(_value_errors(node, value, found, path))


def _check_object(node: Node, obj: JsonObject, path: str, errors: list[FieldError]) -> None:
    raw = node.raw
    errors.extend(FieldError(_join(path, name), "Required") for name in raw.get("required") or () if name not in obj)
    if node.embedded_resource:
        errors.extend(FieldError(_join(path, name), "Required") for name in ("apiVersion", "kind") if not obj.get(name))
    count = len(obj)
    if (most := raw.get("maxProperties")) is not None and count > most:
        errors.append(too_many(path, count, most))
    if (least := raw.get("minProperties")) is not None and count < least:
        errors.append(FieldError(path, "Invalid", count, f"{path} in body should have at least {least} properties"))
    for name, value in obj.items():
        child = node.child(name)
        if not child.untyped and type(value) is not child.plain:
            _check(child, value, _join(path, name), errors)


def _check_list(node: Node, items: list[Any], path: str, errors: list[FieldError]) -> None:
    raw = node.raw
    count = len(items)
    if (most := raw.get("maxItems")) is not None and count > most:
        errors.append(too_many(path, count, most))
    if (least := raw.get("minItems")) is not None and count < least:
        errors.append(FieldError(path, "Invalid", count, f"{path} in body should have at least {least} items"))
    if raw.get("uniqueItems") and len({_json(item) for item in items}) < count:
        errors.append(FieldError(path, "Invalid", "", f"{path} in body shouldn't contain duplicates"))
    element = node.items()
    for index, item in enumerate(items):
        _check(element, item, f"{path}[{index}]", errors)
    if node.list_type != "atomic":
        errors.extend(_duplicates(_identities(node, items), path))


def _identities(node: Node, items: list[Any]) -> Iterator[Any]:
    """Give what must be unique about each element: the element itself in a set, its keys in a map."""
    for item in items:
        if node.list_type == "set":
            yield item
        elif isinstance(item, dict):
            yield {key: item[key] for key in node.map_keys if key in item}
        else:
            yield None  # of the wrong type, which has been said


def _duplicates(identities: Iterable[Any], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, identity in enumerate(identities):
        if identity is None:
            continue
        if (text := _json(identity)) in seen:
            yield FieldError(f"{path}[{index}]", "Duplicate", identity)
        seen.add(text)


def _value_errors(node: Node, value: Any, found: str, path: str) -> Iterator[FieldError]:
    raw = node.raw
    if "enum" in raw and not any(_same(value, allowed) for allowed in raw["enum"]):
        supported = ", ".join(quote(item if isinstance(item, str) else _json(item)) for item in raw["enum"])
        yield FieldError(path, "NotSupported", value, f"supported values: {supported}")
    if found == "string":
        yield from _string_errors(raw, value, path)
    elif found in {"integer", "number"}:
        yield from _number_errors(raw, value, path)
    yield from _composite_errors(node, value, path)


def _string_errors(raw: JsonObject, text: str, path: str) -> Iterator[FieldError]:
    length = len(text)
    if (most := raw.get("maxLength")) is not None and length > most:
        yield FieldError(path, "TooLong", text, f"may not be more than {most} bytes")
    if (least := raw.get("minLength")) is not None and length < least:
        yield FieldError(path, "Invalid", text, f"{path} in body should be at least {least} chars long")
    if pattern := raw.get("pattern"):
        try:
            matched = compile_pattern(pattern).search(text) is not None
            shown = pattern
        except re.error as error:
            matched = False
            shown = f"{pattern}, but pattern is invalid: {error}"
        if not matched:
            yield FieldError(path, "Invalid", text, f"{path} in body should match '{shown}'")
    if (name := raw.get("format")) is not None and not formats.matches(name, text):
        yield FieldError(path, "TypeInvalid", text, f"{path} in body must be of type {name}: {quote(text)}")


def _number_errors(raw: JsonObject, number: float, path: str) -> Iterator[FieldError]:
    bits = _INTEGER_BITS.get(raw.get("format", ""))
    if bits is not None and not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        # The server reports this one at the root, as it does `anyOf` and its kin.
        text = f"Checked value must be of type integer with format {raw['format']} in {path}"
        yield FieldError("", "Invalid", "", text)
    if (most := raw.get("maximum")) is not None:
        exclusive = raw.get("exclusiveMaximum") is True
        if number > most or (exclusive and number == most):
            limit = "less than" if exclusive else "less than or equal to"
            yield FieldError(path, "Invalid", number, f"{path} in body should be {limit} {_number(most)}")
    if (least := raw.get("minimum")) is not None:
        exclusive = raw.get("exclusiveMinimum") is True
        if number < least or (exclusive and number == least):
            limit = "greater than" if exclusive else "greater than or equal to"
            yield FieldError(path, "Invalid", number, f"{path} in body should be {limit} {_number(least)}")
    if (factor := raw.get("multipleOf")) and number % factor:
        yield FieldError(path, "Invalid", number, f"{path} in body should be a multiple of {_number(factor)}")


def _composite_errors(node: Node, value: Any, path: str) -> Iterator[FieldError]:
    """Check `allOf`, `anyOf`, `oneOf` and `not`; the server reports these at the root and names the path."""
    if demands := node.branches("allOf"):
        results = [validate(branch, value, path) for branch in demands]
        if failed := [errors for errors in results if errors]:
            none = ". None validated" if len(failed) == len(results) else ""
            yield FieldError("", "Invalid", "", f"{quote(path)} must validate all the schemas (allOf){none}")
            yield from itertools.chain.from_iterable(failed)
    if alternatives := node.branches("anyOf"):
        results = [validate(branch, value, path) for branch in alternatives]
        if all(results):
            yield FieldError("", "Invalid", "", f"{quote(path)} must validate at least one schema (anyOf)")
            yield from min(results, key=len)
    if alternatives := node.branches("oneOf"):
        results = [validate(branch, value, path) for branch in alternatives]
        if (valid := sum(not errors for errors in results)) != 1:
            found = f"Found {valid} valid alternatives" if valid else "Found none valid"
            yield FieldError("", "Invalid", "", f"{quote(path)} must validate one and only one schema (oneOf). {found}")
            yield from min(results, key=len)
    if (negation := node.negation()) is not None and not validate(negation, value, path):
        yield FieldError("", "Invalid", "", f"{quote(path)} must not validate the schema (not)")


def _wrong_type(path: str, wanted: str, found: str) -> FieldError:
    return FieldError(path, "TypeInvalid", found, f"{path} in body must be of type {wanted}: {quote(found)}")


def _converts(found: str, value: Any, types: tuple[str, ...]) -> bool:
    """Return whether a number is of a type although JSON spells it as another: 3 is a number, 3.0 an integer."""
    if found == "integer":
        return "number" in types
    return found == "number" and "integer" in types and float(value).is_integer()


def _same(left: Any, right: Any) -> bool:
    """Compare JSON values; unlike `==`, true is not 1."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _number(value: float) -> str:
    """Print a limit as the server does: whole numbers without a fraction."""
    return str(int(value)) if float(value).is_integer() else str(value)


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
