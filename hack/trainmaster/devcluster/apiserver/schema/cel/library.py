"""Library: the functions that Kubernetes adds to CEL, as plain functions on plain values.

| group    | functions |
|----------|-----------|
| lists    | isSorted, sum, min, max, indexOf, lastIndexOf |
| regex    | find, findAll |
| sets     | sets.contains, sets.equivalent, sets.intersects |
| quantity | isQuantity, quantity, isInteger, asInteger, asApproximateFloat, sign, add, sub, isLessThan, \
isGreaterThan, compareTo |

Quantities travel as maps with one key that names the type. Equal ones have equal maps.
Not here, and refused while compiling: what is in `ABSENT`, and comprehensions with two variables.
A function raises ValueError with the message of the API server; a call that it does not understand is a TypeError.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trainmaster.devcluster.apiserver.schema.formats import compile_pattern, parses_by
from trainmaster.runtime.quantity import Quantity, QuantityError

_QUANTITY = "kubernetes.Quantity"
_ONE = 10**9  # a quantity counts in nano units
_LIST, _PAIR = ("list<dyn>",), ("dyn", "dyn")


@dataclass(frozen=True, slots=True)
class Function:
    """One function, or one of several with the same name, with the types of what it takes and gives."""

    name: str
    parameters: tuple[str, ...]
    result: str
    call: Callable[..., Any]
    is_method: bool = True


# Lists.


def _is_sorted(items: list[Any]) -> bool:
    return all(left <= right for left, right in itertools.pairwise(items))


def _extreme(choose: Callable[[Iterable[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def call(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return choose(items)

    return call


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((index for index, item in enumerate(items) if item == wanted), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if items[index] == wanted), -1)


# Regular expressions.


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return compile_pattern(text)
    except re.error as error:
        raise ValueError(f"Illegal regex: {error}") from error


def _find(text: str, pattern: str) -> str:
    match = _pattern(pattern).search(text)
    return match.group() if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in _pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


# Quantities.


def _quantity(text: str) -> dict[str, Any]:
    try:
        return _boxed(Quantity.parse(text).nano)
    except QuantityError as error:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _boxed(nano: int) -> dict[str, Any]:
    return {_QUANTITY: str(nano)}


def _nano(value: Any) -> int:
    if not isinstance(value, dict) or value.keys() != {_QUANTITY}:
        raise TypeError(f"no such overload: expected {_QUANTITY}")
    return int(value[_QUANTITY])


def _operand(value: Any) -> int:
    return value * _ONE if isinstance(value, int) and not isinstance(value, bool) else _nano(value)


def _as_integer(value: Any) -> int:
    whole, rest = divmod(_nano(value), _ONE)
    if rest:
        raise ValueError("cannot convert value to integer")
    return whole


def _compare(left: Any, right: Any) -> int:
    ours, theirs = _nano(left), _nano(right)
    return int(ours > theirs) - int(ours < theirs)


FUNCTIONS: tuple[Function, ...] = (
    Function("isSorted", _LIST, "bool", _is_sorted),
    Function("sum", _LIST, "dyn", sum),
    Function("min", _LIST, "dyn", _extreme(min, "min")),
    Function("max", _LIST, "dyn", _extreme(max, "max")),
    Function("indexOf", ("list<dyn>", "dyn"), "int", _index_of),
    Function("lastIndexOf", ("list<dyn>", "dyn"), "int", _last_index_of),
    Function("find", ("string", "string"), "string", _find),
    Function("findAll", ("string", "string"), "list<string>", _find_all),
    Function("findAll", ("string", "string", "int"), "list<string>", _find_all),
    Function("sets.contains", _LIST * 2, "bool", lambda a, b: all(each in a for each in b), is_method=False),
    Function(
        "sets.equivalent",
        _LIST * 2,
        "bool",
        lambda a, b: all(each in a for each in b) and all(each in b for each in a),
        is_method=False,
    ),
    Function("sets.intersects", _LIST * 2, "bool", lambda a, b: any(each in a for each in b), is_method=False),
    Function("quantity", ("string",), "dyn", _quantity, is_method=False),
    Function("isQuantity", ("string",), "bool", parses_by(_quantity), is_method=False),
    Function("asInteger", ("dyn",), "int", _as_integer),
    Function("isInteger", ("dyn",), "bool", lambda value: not _nano(value) % _ONE),
    Function("sign", ("dyn",), "int", lambda value: (_nano(value) > 0) - (_nano(value) < 0)),
    Function("asApproximateFloat", ("dyn",), "double", lambda value: _nano(value) / _ONE),
    Function("add", _PAIR, "dyn", lambda a, b: _boxed(_nano(a) + _operand(b))),
    Function("sub", _PAIR, "dyn", lambda a, b: _boxed(_nano(a) - _operand(b))),
    Function("compareTo", _PAIR, "int", _compare),
    Function("isLessThan", _PAIR, "bool", lambda a, b: _compare(a, b) < 0),
    Function("isGreaterThan", _PAIR, "bool", lambda a, b: _compare(a, b) > 0),
)
"""The functions of Kubernetes."""

ABSENT = frozenset({"cidr", "format", "ip", "isCIDR", "isIP", "isSemver", "isURL", "semver", "url"})
"""What Kubernetes has besides: functions of versions, URLs, addresses and formats begin by one of these."""
